{{/* The folders whose certificates are put together, as YAML: a volume and a path of each. Called with a list of the context
and whether the server itself is to be trusted, for those that call it. */}}
{{- define "mlflow.trustSources" -}}
{{- $root := index . 0 -}}
{{- range $i, $source := $root.Values.caBundle.configMaps }}
- mountPath: {{ $source.mountPath }}
  volume:
    name: ca-bundle-{{ $i }}
    configMap: {name: {{ $source.name }}, optional: true}
{{- end }}
{{- if index . 1 }}
{{- with $root.Values.tls.ca }}
{{- if .configMapName }}
- mountPath: /etc/pki/tls/certs/server
  volume:
    name: server-ca
    configMap:
      name: {{ .configMapName }}
      items: [{key: {{ .key }}, path: ca.crt}]
      optional: true
{{- else if .secretName }}
- mountPath: /etc/pki/tls/certs/server
  volume:
    name: server-ca
    secret:
      secretName: {{ .secretName }}
      items: [{key: {{ .key }}, path: ca.crt}]
      optional: true
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Puts certificates together. A file that is half written is never seen under the final name. */}}
{{- define "mlflow.trustScript" -}}
combine() {
  umask 0077
  part="$CA_BUNDLE_OUTPUT.$$"
  : > "$part"
  IFS=:
  for file in $CA_BUNDLE_FILE_PATHS; do
    if [ -r "$file" ]; then { cat "$file"; echo; } >> "$part"; fi
  done
  for dir in $CA_BUNDLE_MOUNT_PATHS; do
    for file in "$dir"/*.crt "$dir"/*.pem; do
      if [ -r "$file" ]; then { cat "$file"; echo; } >> "$part"; fi
    done
  done
  unset IFS
  chmod 0644 "$part"
  mv -f "$part" "$CA_BUNDLE_OUTPUT"
}
{{- end -}}

{{- define "mlflow.trustContainerEnv" -}}
{{- $paths := list -}}
{{- range .sources -}}{{- $paths = append $paths .mountPath -}}{{- end -}}
- name: CA_BUNDLE_FILE_PATHS
  value: {{ join ":" .root.Values.caBundle.filePaths | quote }}
- name: CA_BUNDLE_MOUNT_PATHS
  value: {{ join ":" $paths | quote }}
- name: CA_BUNDLE_OUTPUT
  value: {{ .root.Values.caBundle.outputPath | quote }}
{{- end -}}

{{- define "mlflow.trustMounts" -}}
- {name: combined-ca-bundle, mountPath: {{ dir .root.Values.caBundle.outputPath }}}
{{- range .sources }}
- {name: {{ .volume.name }}, mountPath: {{ .mountPath }}, readOnly: true}
{{- end }}
{{- end -}}

{{/* The container that puts certificates together before anything else runs. Called with a dict of root and sources. */}}
{{- define "mlflow.trustInit" -}}
- name: combine-ca-bundles
  image: {{ include "mlflow.image" .root | quote }}
  {{- with .root.Values.image.imagePullPolicy }}
  imagePullPolicy: {{ . }}
  {{- end }}
  command: [/bin/sh, -c]
  args:
  - |
    set -eu
    {{- include "mlflow.trustScript" . | nindent 4 }}
    combine
  env:
    {{- include "mlflow.trustContainerEnv" . | nindent 4 }}
  resources:
    requests: {cpu: 10m, memory: 16Mi}
    limits: {cpu: 100m, memory: 64Mi}
  securityContext:
    {{- toYaml .root.Values.securityContext | nindent 4 }}
  volumeMounts:
    {{- include "mlflow.trustMounts" . | nindent 4 }}
{{- end -}}

{{/* The container that does it again when a ConfigMap changes, for clients that read the file anew. */}}
{{- define "mlflow.trustWatcher" -}}
- name: ca-bundle-watcher
  image: {{ include "mlflow.image" .root | quote }}
  {{- with .root.Values.image.imagePullPolicy }}
  imagePullPolicy: {{ . }}
  {{- end }}
  command: [/bin/sh, -c]
  args:
  - |
    set -u
    trap 'exit 0' TERM INT
    {{- include "mlflow.trustScript" . | nindent 4 }}
    look() {
      IFS=:
      for dir in $CA_BUNDLE_MOUNT_PATHS; do cat "$dir"/*.crt "$dir"/*.pem 2>/dev/null; done | sha256sum
      unset IFS
    }
    before=$(look)
    while :; do
      sleep "$CA_BUNDLE_WATCH_INTERVAL" &
      wait $!
      now=$(look)
      [ "$now" = "$before" ] || { combine && before=$now; }
    done
  env:
    {{- include "mlflow.trustContainerEnv" . | nindent 4 }}
    - name: CA_BUNDLE_WATCH_INTERVAL
      value: {{ .root.Values.caBundle.watchInterval | quote }}
  resources:
    requests: {cpu: 5m, memory: 8Mi}
    limits: {cpu: 50m, memory: 32Mi}
  securityContext:
    {{- toYaml .root.Values.securityContext | nindent 4 }}
  volumeMounts:
    {{- include "mlflow.trustMounts" . | nindent 4 }}
{{- end -}}

{{- define "mlflow.trustVolumes" -}}
- name: combined-ca-bundle
  emptyDir: {}
{{- range .sources }}
- {{- toYaml .volume | nindent 2 }}
{{- end }}
{{- end -}}
