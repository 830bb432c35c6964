// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// Layer is one ConfigMap's text.
type Layer struct{ Name, Key, Text string }

// Parse puts the texts over the defaults, the later over the earlier. Unknown are keys that nobody knows; faults are values
// that cannot be used, without which the result means nothing.
func Parse(podImage string, layers ...Layer) (out *Settings, unknown, faults []string) {
	out = Default(podImage)
	for _, l := range layers {
		r := &reading{}
		raw := map[string]any{}
		if err := yaml.Unmarshal([]byte(l.Text), &raw); err != nil {
			faults = append(faults, fmt.Sprintf("%s in ConfigMap %s is no YAML: %s", l.Key, l.Name, oneLine(err)))
			continue
		}
		r.layer(out, raw)
		for _, k := range r.unknown {
			unknown = append(unknown, fmt.Sprintf("%s in %s of ConfigMap %s", k, l.Key, l.Name))
		}
		for _, f := range r.faults {
			faults = append(faults, fmt.Sprintf("%s (%s of ConfigMap %s)", f, l.Key, l.Name))
		}
	}
	if len(faults) == 0 {
		faults = check(out)
	}
	return out, unknown, faults
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// reading collects what is noticed on the way.
type reading struct{ unknown, faults []string }

func (r *reading) fault(path, format string, args ...any) {
	r.faults = append(r.faults, path+": "+fmt.Sprintf(format, args...))
}

// layer reads one text over what holds so far.
func (r *reading) layer(into *Settings, raw map[string]any) {
	before := *into
	images := map[string]imagePair{
		"modelmeshimage":     {&into.ModelMeshImage, before.ModelMeshImage, nil},
		"storagehelperimage": {&into.StorageHelperImage, before.StorageHelperImage, []string{foreignPull}},
		"adapterimage":       {&into.AdapterImage, before.AdapterImage, nil},
	}
	r.object("", reflect.ValueOf(into).Elem(), raw)
	for key, pair := range images {
		pair.complete(folded(raw)[key])
	}
	if proxy, ok := folded(raw)["restproxy"].(map[string]any); ok {
		imagePair{&into.RESTProxy.Image, before.RESTProxy.Image, nil}.complete(folded(proxy)["image"])
	}
	if adapter, ok := folded(raw)["adapterimage"].(map[string]any); ok && folded(adapter)["command"] != nil {
		r.unknown = append(r.unknown, "adapterImage.command") // which adapter is started follows from the server
	}
	_, helper := folded(raw)["storagehelperimage"]
	if _, adapter := folded(raw)["adapterimage"]; helper && !adapter && !into.StorageHelperImage.Ours() {
		into.AdapterImage = into.StorageHelperImage // as it comes, helper and adapters are in one
	}
}

// imagePair is an image and what it was before a text named another. How an image is started depends on whose it is.
type imagePair struct {
	now     *Image
	before  Image
	command []string
}

func (p imagePair) complete(raw any) {
	given, ok := raw.(map[string]any)
	if !ok {
		return
	}
	keys := folded(given)
	_, tag := keys["tag"]
	_, digest := keys["digest"]
	_, command := keys["command"]
	if p.now.Name != p.before.Name {
		if !tag {
			p.now.Tag = ""
		}
		if !command {
			p.now.Command = p.command
		}
		tag = true // of another image
	}
	if tag && !digest {
		p.now.Digest = ""
	}
}

// folded has the keys in lower case.
func folded(raw map[string]any) map[string]any {
	out := make(map[string]any, len(raw))
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		out[strings.ToLower(key)] = raw[key]
	}
	return out
}

// object reads the keys of a struct. Those that are missing keep what they have.
func (r *reading) object(path string, into reflect.Value, raw map[string]any) {
	fields := map[string]int{}
	for i := range into.NumField() {
		fields[strings.ToLower(into.Type().Field(i).Tag.Get("json"))] = i
	}
	seen := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		at := path + key
		i, known := fields[strings.ToLower(key)]
		if !known {
			r.unknown = append(r.unknown, at)
			continue
		}
		if other, twice := seen[strings.ToLower(key)]; twice {
			r.fault(at, "is the same key as %s; keep one of them", other)
			continue
		}
		seen[strings.ToLower(key)] = at
		if raw[key] != nil {
			r.value(at, into.Field(i), raw[key])
		}
	}
}

func (r *reading) value(path string, into reflect.Value, raw any) {
	switch into.Kind() {
	case reflect.Struct:
		if m, ok := raw.(map[string]any); ok {
			r.object(path+".", into, m)
			return
		}
		r.fault(path, "is no map of keys")
	case reflect.Slice:
		r.list(path, into, raw)
	case reflect.Map:
		r.texts(path, into, raw)
	default:
		r.scalar(path, into, raw)
	}
}

func (r *reading) list(path string, into reflect.Value, raw any) {
	items, ok := raw.([]any)
	if !ok {
		r.fault(path, "is no list")
		return
	}
	out := reflect.MakeSlice(into.Type(), len(items), len(items))
	for i, item := range items {
		r.value(fmt.Sprintf("%s[%d]", path, i), out.Index(i), item)
	}
	into.Set(out)
}

// texts reads a map of people's own keys, whose case is theirs, over the one before.
func (r *reading) texts(path string, into reflect.Value, raw any) {
	items, ok := raw.(map[string]any)
	if !ok {
		r.fault(path, "is no map of keys")
		return
	}
	out := map[string]string{}
	if before, ok := into.Interface().(map[string]string); ok {
		maps.Copy(out, before)
	}
	for _, key := range slices.Sorted(maps.Keys(items)) {
		var text string
		r.scalar(path+"."+key, reflect.ValueOf(&text).Elem(), items[key])
		out[key] = text
	}
	into.Set(reflect.ValueOf(out))
}

// scalar is generous about quotes, as these files always were.
func (r *reading) scalar(path string, into reflect.Value, raw any) {
	text, ok := plain(raw)
	if !ok {
		r.fault(path, "is no single value")
		return
	}
	switch into.Kind() {
	case reflect.String:
		into.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			r.fault(path, "%s is neither true nor false", quote(text))
			return
		}
		into.SetBool(b)
	default:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || into.OverflowInt(n) {
			r.fault(path, "%s is no whole number", quote(text))
			return
		}
		into.SetInt(n)
	}
}

func plain(raw any) (string, bool) {
	switch v := raw.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case float64, int64, json.Number:
		encoded, err := json.Marshal(v)
		return string(encoded), err == nil
	}
	return "", false
}

func quote(s string) string {
	const most = 60
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}
