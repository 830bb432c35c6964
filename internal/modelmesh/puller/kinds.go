// SPDX-License-Identifier: Apache-2.0

package puller

import (
	"encoding/json"
	"net/url"
	"path"
	"regexp"
	"strings"
	"sync"
)

// place is a storage: addresses of what is in it, and the variables by which package fetch gets in.
type place struct {
	address func(at string) string
	env     map[string]string
}

// kinds read an entry of the storage secret, by its type.
var kinds = map[string]func(map[string]any) (*place, error){
	"s3": readS3, "gcs": readGoogle, "azure": readAzure, "http": readWeb, "https": readWeb,
}

// given are variables that have a value; others are the process's own.
func given(pairs ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out[pairs[i]] = pairs[i+1]
		}
	}
	return out
}

// readS3 hands the entry over as it is: its keys are those that services use as well.
func readS3(entry map[string]any) (*place, error) {
	bucket := text(entry, "bucket")
	if bucket == "" {
		bucket = text(entry, "default_bucket")
	}
	if bucket == "" {
		return nil, mistakef("storage of type s3 needs a bucket; set it in the entry of the storage secret or as the parameter bucket")
	}
	config, err := json.Marshal(entry)
	if err != nil {
		return nil, err
	}
	return &place{
		address: func(at string) string { return "s3://" + bucket + "/" + strings.TrimPrefix(at, "/") },
		// The secret is there a second time to be kept out of messages.
		env: given("STORAGE_CONFIG", string(config), "AWS_SECRET_ACCESS_KEY", text(entry, "secret_access_key"),
			"AWS_SESSION_TOKEN", text(entry, "session_token")),
	}, nil
}

func readGoogle(entry map[string]any) (*place, error) {
	bucket := text(entry, "bucket")
	if bucket == "" {
		return nil, mistakef("storage of type gcs needs a bucket; set it in the entry of the storage secret or as the parameter bucket")
	}
	if (text(entry, "private_key") == "") != (text(entry, "client_email") == "") {
		return nil, mistakef("storage of type gcs needs private_key and client_email, or neither for public buckets; correct the entry of the storage secret")
	}
	config, err := json.Marshal(entry)
	if err != nil {
		return nil, err
	}
	return &place{
		address: func(at string) string { return "gs://" + bucket + "/" + strings.TrimPrefix(at, "/") },
		env:     given("STORAGE_CONFIG", string(config)),
	}, nil
}

// Names that Azure allows; anything else could lead to another host.
var (
	accounts   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9-]{1,63}$`) })
	containers = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[$a-z0-9-]{1,63}$`) })
)

func readAzure(entry map[string]any) (*place, error) {
	connection := connectionString(text(entry, "connection_string"))
	account, container := text(entry, "account_name"), text(entry, "container")
	if account == "" {
		account = connection["AccountName"]
	}
	if !accounts().MatchString(account) || !containers().MatchString(container) {
		return nil, mistakef("storage of type azure needs account_name and container; set them in the entry of the storage secret or as parameters")
	}
	p := &place{env: given("AZURE_CLIENT_ID", text(entry, "client_id"), "AZURE_CLIENT_SECRET", text(entry, "client_secret"),
		"AZURE_TENANT_ID", text(entry, "tenant_id"))}
	if len(connection) > 0 { // it comes before anything else that there is
		p.env = given("AZURE_STORAGE_ACCESS_KEY", connection["AccountKey"], "AZURE_SERVICE_URL", connection["BlobEndpoint"],
			"AZURE_ACCOUNT_NAME", connection["AccountName"])
		p.env["AZURE_CLIENT_ID"], p.env["AZ_CLIENT_ID"], p.env["AZURE_ACCESS_TOKEN"] = "", "", ""
	}
	p.address = func(at string) string {
		u := url.URL{Scheme: "https", Host: account + ".blob.core.windows.net", Path: "/" + container + "/" + strings.TrimPrefix(at, "/"),
			RawQuery: strings.TrimPrefix(connection["SharedAccessSignature"], "?")}
		return u.String()
	}
	return p, nil
}

// connectionString has names and values between semicolons; values may have equals signs.
func connectionString(s string) map[string]string {
	out := map[string]string{}
	for part := range strings.SplitSeq(s, ";") {
		if name, value, ok := strings.Cut(part, "="); ok {
			out[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return out
}

func readWeb(entry map[string]any) (*place, error) {
	base, err := url.Parse(text(entry, "url"))
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, mistakef("storage of type http needs an address; set url in the entry of the storage secret or as a parameter, for example https://HOST")
	}
	if (text(entry, "client_certificate") == "") != (text(entry, "client_key") == "") {
		return nil, mistakef("storage of type http needs client_certificate and client_key, or neither; correct the entry of the storage secret")
	}
	headers, err := webHeaders(entry["headers"])
	if err != nil {
		return nil, err
	}
	host := base.Hostname()
	return &place{
		address: func(at string) string {
			u := *base
			u.Path, u.RawPath = path.Join("/", base.Path, at), ""
			return u.String()
		},
		env: given(host+"-headers", headers, host+"-certificate", text(entry, "certificate"),
			host+"-client-certificate", text(entry, "client_certificate"), host+"-client-key", text(entry, "client_key")),
	}, nil
}

// webHeaders writes headers, whose values may be lists, as package fetch reads them.
func webHeaders(value any) (string, error) {
	if value == nil {
		return "", nil
	}
	wrong := mistakef("the headers of a storage of type http must be texts or lists of texts; correct the entry of the storage secret")
	all, ok := value.(map[string]any)
	if !ok {
		return "", wrong
	}
	out := map[string]string{}
	for name, value := range all {
		values, ok := value.([]any)
		if !ok {
			values = []any{value}
		}
		texts := make([]string, len(values))
		for i, v := range values {
			if texts[i], ok = v.(string); !ok {
				return "", wrong
			}
		}
		out[name] = strings.Join(texts, ", ")
	}
	written, err := json.Marshal(out)
	return string(written), err
}
