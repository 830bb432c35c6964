// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/modelplane/modelplane/internal/version"
)

type object = map[string]any

// describe tells of the API, made from the same tables and types as the API itself.
func (a *API) describe(*http.Request, Caller) (answer, error) {
	return ok(document(publicRoutes())), nil
}

func document(routes []route) object {
	paths, schemas := object{}, object{
		"Error":       object{"type": "object", "properties": object{"error": object{"type": "string"}, "code": object{"type": "string"}}},
		"NestedError": object{"type": "object", "properties": object{"error": object{"type": "object", "properties": object{"message": object{"type": "string"}, "type": object{"type": "string"}}}}},
	}
	for _, r := range routes {
		at, _ := paths[r.path].(object)
		if at == nil {
			at = object{}
			paths[r.path] = at
		}
		at[strings.ToLower(r.method)] = describeRoute(r, schemas)
	}
	return object{
		"openapi": "3.0.3",
		"info":    object{"title": "Models as a Service", "version": "v1", "description": "Served by Modelplane " + version.Get().Version},
		"paths":   paths,
		"components": object{"schemas": schemas, "securitySchemes": object{
			"bearer": object{"type": "http", "scheme": "bearer", "description": "An API key, or a token of the Kubernetes cluster"},
		}},
	}
}

var inPath = regexp.MustCompile(`\{(\w+)\}`)

func describeRoute(r route, schemas object) object {
	failure := "#/components/schemas/Error"
	if isNested(r.path) {
		failure = "#/components/schemas/NestedError"
	}
	responses := object{}
	for _, code := range r.doc.errors {
		responses[strconv.Itoa(code)] = object{"description": http.StatusText(code), "content": content(object{"$ref": failure})}
	}
	code, success := max(r.doc.code, http.StatusOK), object{"description": "Done"}
	if r.doc.answers != nil {
		success["content"] = content(schemaOf(reflect.TypeOf(r.doc.answers), schemas))
	}
	responses[strconv.Itoa(code)] = success
	out := object{"summary": r.doc.summary, "responses": responses}
	var parameters []any
	for _, name := range inPath.FindAllStringSubmatch(r.path, -1) {
		parameters = append(parameters, object{"name": name[1], "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	if r.doc.header != "" {
		parameters = append(parameters, object{"name": r.doc.header, "in": "header", "schema": object{"type": "string"}})
	}
	if parameters != nil {
		out["parameters"] = parameters
	}
	if r.doc.asks != nil {
		out["requestBody"] = object{"content": content(schemaOf(reflect.TypeOf(r.doc.asks), schemas))}
	}
	switch r.who {
	case strict, internal:
		out["security"] = []any{object{"bearer": []any{}}}
	case optional:
		out["security"] = []any{object{}, object{"bearer": []any{}}}
	case open:
	}
	return out
}

func content(schema object) object { return object{"application/json": object{"schema": schema}} }

var rawJSON = reflect.TypeFor[json.RawMessage]()

// schemaOf describes a type; structs get an entry of their own.
func schemaOf(t reflect.Type, schemas object) object {
	switch {
	case t == rawJSON:
		return object{"oneOf": []any{object{"type": "string"}, object{"type": "number"}}}
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t.Kind() == reflect.Interface:
		return object{}
	case t.Kind() == reflect.Pointer:
		return schemaOf(t.Elem(), schemas)
	case t.Kind() == reflect.Slice:
		return object{"type": "array", "items": schemaOf(t.Elem(), schemas)}
	case t.Kind() == reflect.Map:
		return object{"type": "object", "additionalProperties": schemaOf(t.Elem(), schemas)}
	case t.Kind() == reflect.Bool:
		return object{"type": "boolean"}
	case t.Kind() == reflect.String:
		return object{"type": "string"}
	case t.Kind() == reflect.Struct:
		name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
		if schemas[name] == nil {
			schemas[name] = object{} // for one that contains itself
			schemas[name] = fields(t, schemas)
		}
		return object{"$ref": "#/components/schemas/" + name}
	}
	return object{"type": "integer"}
}

func fields(t reflect.Type, schemas object) object {
	properties := object{}
	var required []string
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		schema := schemaOf(f.Type, schemas)
		if doc := f.Tag.Get("doc"); doc != "" {
			schema["description"] = doc
		}
		properties[name] = schema
		if !strings.Contains(options, "omit") {
			required = append(required, name)
		}
	}
	out := object{"type": "object", "properties": properties}
	if required != nil {
		out["required"] = required
	}
	return out
}
