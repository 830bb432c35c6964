{{/* The name of the server and most of what belongs to it. */}}
{{- define "mlflow.name" -}}
mlflow{{ .Values.resourceSuffix }}
{{- end -}}

{{- define "mlflow.namespace" -}}
{{ .Values.namespace | default .Release.Namespace }}
{{- end -}}

{{/* Labels of an object. Called with a list of the context and the value of the label app. */}}
{{- define "mlflow.labels" -}}
{{- toYaml (merge (dict "app" (last .)) (index . 0).Values.commonLabels) -}}
{{- end -}}

{{/* Labels of pods; what selects them cannot be overridden. Called like mlflow.labels, with further labels at the end. */}}
{{- define "mlflow.podLabels" -}}
{{- $root := index . 0 -}}
{{- $own := merge (dict "app" (index . 1) "app.kubernetes.io/instance" (include "mlflow.name" $root)) $root.Values.commonLabels -}}
{{- toYaml (merge $own (index . 2)) -}}
{{- end -}}

{{- define "mlflow.image" -}}
{{- required "image.name is needed: an image of MLflow with mlflow-kubernetes-plugins." .Values.image.name -}}
{{- end -}}

{{/* The address of the server inside the cluster. */}}
{{- define "mlflow.host" -}}
{{ include "mlflow.name" . }}.{{ include "mlflow.namespace" . }}.svc
{{- end -}}

{{/* Where a database is, as the rest of an environment variable. Called with a list of the context, the plain value, the
reference and the name of the value for messages; empty when there is none. */}}
{{- define "mlflow.store" -}}
{{- $plain := index . 1 -}}
{{- $from := index . 2 -}}
{{- if $from -}}
{{- $ref := get $from "secretKeyRef" | default dict -}}
{{- if not (and (get $ref "name") (get $ref "key")) -}}
{{- fail (printf "mlflow.%sFrom needs secretKeyRef.name and secretKeyRef.key." (index . 3)) -}}
{{- end -}}
{{- toYaml (dict "valueFrom" (dict "secretKeyRef" $ref)) -}}
{{- else if $plain -}}
{{- toYaml (dict "value" $plain) -}}
{{- end -}}
{{- end -}}

{{- define "mlflow.backendStore" -}}
{{- $m := .Values.mlflow -}}
{{- required "mlflow.backendStoreUri or mlflow.backendStoreUriFrom is needed."
    (include "mlflow.store" (list . $m.backendStoreUri $m.backendStoreUriFrom "backendStoreUri")) -}}
{{- end -}}

{{- define "mlflow.registryStore" -}}
{{- $m := .Values.mlflow -}}
{{- include "mlflow.store" (list . $m.registryStoreUri $m.registryStoreUriFrom "registryStoreUri") | default (include "mlflow.backendStore" .) -}}
{{- end -}}

{{/* The variables that belong to the chart: a user's value of the same name is left out. */}}
{{- define "mlflow.ownedEnv" -}}
- MLFLOW_SERVER_ENABLE_JOB_EXECUTION
- MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE
- MLFLOW_TRACE_ARCHIVAL_CONFIG
- MLFLOW_BACKEND_STORE_URI
- MLFLOW_READ_REPLICA_BACKEND_STORE_URI
- MLFLOW_REGISTRY_STORE_URI
{{- end -}}

{{/* An environment without two variables of one name. What the user says goes before what the chart says, the last of
several goes before the others, and what belongs to the chart is the chart's. Called with a dict of the context (root) and
the chart's variables before and after the user's, as YAML. */}}
{{- define "mlflow.env" -}}
{{- $owned := include "mlflow.ownedEnv" .root | fromYamlArray -}}
{{- $said := dict -}}
{{- $user := list -}}
{{- range reverse .root.Values.env -}}
{{- if not (or (has .name $owned) (hasKey $said .name)) -}}
{{- $_ := set $said .name true -}}
{{- $user = prepend $user . -}}
{{- end -}}
{{- end -}}
{{- $all := list -}}
{{- range fromYamlArray .before -}}
{{- if not (hasKey $said .name) -}}{{- $all = append $all . -}}{{- end -}}
{{- end -}}
{{- $all = concat $all $user -}}
{{- range fromYamlArray .after -}}
{{- if not (hasKey $said .name) -}}{{- $all = append $all . -}}{{- end -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{/* What makes clients trust the certificates that were put together. */}}
{{- define "mlflow.trustEnv" -}}
{{- range list "SSL_CERT_FILE" "REQUESTS_CA_BUNDLE" "CURL_CA_BUNDLE" "AWS_CA_BUNDLE" "PGSSLROOTCERT" "MLFLOW_MYSQL_CA" }}
- name: {{ . }}
  value: {{ $.Values.caBundle.outputPath | quote }}
{{- end }}
{{- with .Values.caBundle.pgSSLMode }}
- name: PGSSLMODE
  value: {{ . | quote }}
{{- end }}
- name: MLFLOW_S3_IGNORE_TLS
  value: "false"
{{- end -}}

{{/* Variables that every job has for the workspaces and the database. */}}
{{- define "mlflow.jobEnv" -}}
- name: MLFLOW_ENABLE_WORKSPACES
  value: "true"
- name: MLFLOW_WORKSPACE_STORE_URI
  value: {{ .Values.mlflow.workspaceStoreUri | quote }}
{{- with .Values.mlflow.workspaceLabelSelector }}
- name: MLFLOW_K8S_WORKSPACE_LABEL_SELECTOR
  value: {{ . | quote }}
{{- end }}
- name: MLFLOW_BACKEND_STORE_URI
  {{- include "mlflow.backendStore" . | nindent 2 }}
{{- end -}}
