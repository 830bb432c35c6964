// SPDX-License-Identifier: Apache-2.0

package main

// object of Envoy's configuration.
type object = map[string]any

const types = "type.googleapis.com/envoy."

// bootstrap has Envoy take requests at one port of this machine and hand them to another: a route by regular expression that
// sets two headers and limits the time, retries of what no server has taken, an access log, and one server behind it.
func bootstrap(port, server int) object {
	return object{"static_resources": object{
		"listeners": []object{{
			"name": "http", "address": socket(port),
			"filter_chains": []object{{"filters": []object{{
				"name":         "envoy.filters.network.http_connection_manager",
				"typed_config": connectionManager(),
			}}}},
		}},
		"clusters": []object{{
			"name": "model", "type": "STATIC", "connect_timeout": "10s", "lb_policy": "LEAST_REQUEST",
			"load_assignment": object{"cluster_name": "model", "endpoints": []object{{
				"lb_endpoints": []object{{"endpoint": object{"address": socket(server)}}},
			}}},
		}},
	}}
}

func connectionManager() object {
	return object{
		"@type":       types + "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"stat_prefix": "http", "use_remote_address": true, "normalize_path": true, "merge_slashes": true,
		"access_log": []object{{"name": "envoy.access_loggers.file", "typed_config": object{
			"@type": types + "extensions.access_loggers.file.v3.FileAccessLog", "path": "/dev/null",
		}}},
		"http_filters": []object{{"name": "envoy.filters.http.router", "typed_config": object{
			"@type": types + "extensions.filters.http.router.v3.Router",
		}}},
		"route_config": object{"virtual_hosts": []object{{
			"name": "bench", "domains": []string{host},
			"routes": []object{{
				"match":                  object{"safe_regex": object{"regex": "^/.*$"}},
				"request_headers_to_add": []object{header("KServe-Isvc-Name", "bench"), header("KServe-Isvc-Namespace", "default")},
				"route": object{"cluster": "model", "timeout": "60s", "retry_policy": object{
					"retry_on": "connect-failure,refused-stream,reset-before-request", "num_retries": 3,
				}},
			}},
		}}},
	}
}

func header(name, value string) object {
	return object{"header": object{"key": name, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
}

func socket(port int) object {
	return object{"socket_address": object{"address": "127.0.0.1", "port_value": port}}
}
