{{/* The name of everything in this release, short enough for the suffixes that follow it. */}}
{{- define "modelplane.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 46 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" (.Release.Name | trunc 35 | trimSuffix "-") .Chart.Name -}}
{{- end -}}
{{- end -}}

{{/* What selects the pods; never changes within a release. */}}
{{- define "modelplane.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The manager looks for part-of when it hands its trusted roots to the API server. */}}
{{- define "modelplane.labels" -}}
{{ include "modelplane.selector" . }}
app.kubernetes.io/part-of: modelplane
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "modelplane.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "modelplane.name" .) -}}
{{- else -}}
{{- required "serviceAccount.name is needed when serviceAccount.create is false: name an account that exists." .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "modelplane.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (.tag | default (printf "v%s" $.Chart.AppVersion)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The image of what runs once per pod. Without a repository of its own it lies beside the manager's, and without a tag it
has the manager's. */}}
{{- define "modelplane.podImage" -}}
{{- $repository := .Values.podImage.repository | default (printf "%s-pod" .Values.image.repository) -}}
{{- if .Values.podImage.digest -}}
{{- printf "%s@%s" $repository .Values.podImage.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (.Values.podImage.tag | default .Values.image.tag | default (printf "v%s" .Chart.AppVersion)) -}}
{{- end -}}
{{- end -}}

{{/* What everything of the activator is called. */}}
{{- define "modelplane.activator" -}}
{{- include "modelplane.name" . }}-activator
{{- end -}}

{{/* What selects the pods of the activator, and no others. */}}
{{- define "modelplane.activatorSelector" -}}
app.kubernetes.io/name: activator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* What everything of etcd is called. */}}
{{- define "modelplane.etcd" -}}
{{- include "modelplane.name" . }}-etcd
{{- end -}}

{{/* What selects the pods of etcd, and no others. */}}
{{- define "modelplane.etcdSelector" -}}
app.kubernetes.io/name: etcd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The image of etcd. Without a repository of its own it lies beside the manager's, and without a tag it has the manager's. */}}
{{- define "modelplane.etcdImage" -}}
{{- $image := .Values.modelmesh.etcd.image -}}
{{- $repository := $image.repository | default (printf "%s-etcd" .Values.image.repository) -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository ($image.tag | default .Values.image.tag | default (printf "v%s" .Chart.AppVersion)) -}}
{{- end -}}
{{- end -}}

{{/* Half of a size in Mi or Gi, in bytes; empty for any other. The rest of the disk is for etcd's log. */}}
{{- define "modelplane.halfOf" -}}
{{- if regexMatch "^[0-9]+Mi$" . -}}
{{- mul (trimSuffix "Mi" . | int64) 524288 -}}
{{- else if regexMatch "^[0-9]+Gi$" . -}}
{{- mul (trimSuffix "Gi" . | int64) 536870912 -}}
{{- end -}}
{{- end -}}

{{/* The Secret that is mounted when the manager does not make its certificates itself; empty when it does. */}}
{{- define "modelplane.certSecret" -}}
{{- with .Values.webhook.certificates -}}
{{- if eq .source "cert-manager" -}}
{{- printf "%s-webhook-tls" (include "modelplane.name" $) -}}
{{- else if eq .source "secret" -}}
{{- required "webhook.certificates.secretName is needed when webhook.certificates.source is secret." .secretName -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Tells cert-manager to hand its roots to the API server. */}}
{{- define "modelplane.certManagerAnnotation" -}}
cert-manager.io/inject-ca-from: {{ printf "%s/%s-webhook" .Release.Namespace (include "modelplane.name" .) }}
{{- end -}}

{{/* Nine tenths of a memory limit in Mi or Gi, as Go writes it; empty for any other limit. Called with whatever has resources. */}}
{{- define "modelplane.goMemLimit" -}}
{{- $limit := dig "limits" "memory" "" .resources | toString -}}
{{- if regexMatch "^[0-9]+Mi$" $limit -}}
{{- printf "%dMiB" (div (mul (trimSuffix "Mi" $limit | int) 9) 10) -}}
{{- else if regexMatch "^[0-9]+Gi$" $limit -}}
{{- printf "%dMiB" (div (mul (trimSuffix "Gi" $limit | int) 1024 9) 10) -}}
{{- end -}}
{{- end -}}

{{/* Whether an enabled domain uses a CustomResourceDefinition: "true" or empty. Called with a list of the context
and the name of the definition. */}}
{{- define "modelplane.enabled" -}}
{{- $root := first . -}}
{{- $used := false -}}
{{- range get (include "modelplane.domains" $root | fromYaml) (last .) | splitList "," -}}
{{- if has . $root.Values.enable -}}{{- $used = true -}}{{- end -}}
{{- end -}}
{{- if $used -}}
true
{{- end -}}
{{- end -}}

{{/* The configuration of serving as JSON: the chart's, with the user's over it. */}}
{{- define "modelplane.servingConfig" -}}
{{- $config := mustMergeOverwrite (.Files.Get "files/config.yaml" | fromYaml) (deepCopy .Values.serving.config) -}}
{{- $own := include "modelplane.podImage" . -}}
{{- $download := $config.storageInitializer -}}
{{- $_ := set $download "image" ($download.image | default $own) -}}
{{- if not (get $download "command") -}}
{{- if eq $download.image $own -}}
{{- $_ := set $download "command" (list "/modelplane-pod" "storage-initializer") -}}
{{- else if eq $download.image (include "modelplane.image" .) -}}
{{- /* Somebody named the manager's image, which can still do this. */ -}}
{{- $_ := set $download "command" (list "/modelplane" "storage-initializer") -}}
{{- end -}}
{{- end -}}
{{- $agent := $config.agent -}}
{{- $_ := set $agent "image" ($agent.image | default $own) -}}
{{- if and (eq $agent.image $own) (not (get $agent "command")) -}}
{{- $_ := set $agent "command" (list "/modelplane-pod" "agent") -}}
{{- end -}}
{{- range list $config.logger $config.batcher -}}
{{- $_ := set . "image" (.image | default $agent.image) -}}
{{- end -}}
{{- if .Values.activator.enabled -}}
{{- $_ := set $config.autoscaler "activator" (get $config.autoscaler "activator" | default (include "modelplane.activator" .)) -}}
{{- end -}}
{{- $router := $config.router -}}
{{- $_ := set $router "image" ($router.image | default $own) -}}
{{- if and (eq $router.image $own) (not (get $router "command")) -}}
{{- $_ := set $router "command" (list "/modelplane-pod" "router") -}}
{{- end -}}
{{- toJson $config -}}
{{- end -}}

{{/* The image of a model server. Called with a list of the registry that has all images (or nothing), the image that the
runtime names, and what the user says of it. */}}
{{- define "modelplane.serverImage" -}}
{{- $registry := index . 0 -}}
{{- $image := index . 1 -}}
{{- $own := index . 2 -}}
{{- $tag := regexFind "[^:]*$" $image -}}
{{- $repository := get $own "repository" | default (trimSuffix (printf ":%s" $tag) $image) -}}
{{- if and $registry (not (get $own "repository")) -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" $registry) (regexReplaceAll "^[^/]*[.:][^/]*/" $repository "") -}}
{{- end -}}
{{- if get $own "digest" -}}
{{- printf "%s@%s" $repository $own.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (get $own "tag" | default $tag) -}}
{{- end -}}
{{- end -}}

{{/* What the manager is told of registries, in variables that other installations of them have too. */}}
{{- define "modelplane.modelregistryEnv" -}}
{{- $ := . -}}
{{- with .Values.modelregistry -}}
- {name: MODELPLANE_IMAGE, value: {{ include "modelplane.image" $ | quote }}}
{{- $env := list
  (list "RELATED_IMAGE_ODH_MODEL_REGISTRY_IMAGE" .image)
  (list "RELATED_IMAGE_ODH_KUBE_RBAC_PROXY_IMAGE" .proxyImage)
  (list "RELATED_IMAGE_POSTGRESQL_16_IMAGE" .postgresImage)
  (list "REGISTRIES_NAMESPACE" .namespace)
  (list "DEFAULT_DOMAIN" .domain)
  (list "MODEL_REGISTRY_INGRESS_CLASS" .ingressClass)
  (list "GATEWAY_DOMAIN" .gateway.domain)
  (list "MODEL_REGISTRY_GATEWAY_NAME" .gateway.name)
  (list "MODEL_REGISTRY_GATEWAY_NAMESPACE" .gateway.namespace)
  (list "HTTPROUTE_NAMESPACE" .gateway.routeNamespace)
  (list "INFERENCE_SERVICE_CONTROLLER" (ternary "managed" "removed" .link.enabled))
  (list "MODEL_REGISTRY_URLS" (join "," .link.urls))
  (list "ENABLE_AIHUB_MODULE_CONTROLLER" (ternary "true" "" .aihub.enabled))
  (list "ENABLE_MODEL_CATALOG" (ternary "true" "" .catalog.enabled))
  (list "RELATED_IMAGE_ODH_MODEL_METADATA_COLLECTION_IMAGE" .catalog.dataImage)
  (list "RELATED_IMAGE_ODH_MODEL_PERFORMANCE_DATA_IMAGE" .catalog.benchmarkImage) }}
{{- range $env }}
{{- if last . }}
- {name: {{ first . }}, value: {{ last . | quote }}}
{{- end }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* What the manager is told of MLflow, in variables that other installations of it have too. */}}
{{- define "modelplane.mlflowEnv" -}}
{{- with .Values.mlflow -}}
- {name: GATEWAY_NAME, value: {{ .gateway.name | quote }}}
- {name: GATEWAY_NAMESPACE, value: {{ .gateway.namespace | quote }}}
- {name: SECTION_TITLE, value: {{ .sectionTitle | quote }}}
- {name: RESOURCE_NAME_PREFIX, value: {{ .resourceNamePrefix | quote }}}
{{- if .module.enabled }}
- {name: ENABLE_MLFLOW_OPERATOR_MODULE_CONTROLLER, value: "true"}
{{- end }}
{{- if .access.enabled }}
- {name: ENABLE_NAMESPACE_RBAC, value: "true"}
{{- end }}
{{- with .image }}
- {name: MLFLOW_IMAGE, value: {{ . | quote }}}
{{- end }}
{{- with .url }}
- {name: MLFLOW_URL, value: {{ . | quote }}}
{{- end }}
{{- with .namespace }}
- {name: APPLICATIONS_NAMESPACE, value: {{ . | quote }}}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The namespace of the MLflow server if it is not that of the release, else empty. */}}
{{- define "modelplane.mlflowElsewhere" -}}
{{- if and .Values.mlflow.namespace (ne .Values.mlflow.namespace .Release.Namespace) -}}
{{- .Values.mlflow.namespace -}}
{{- end -}}
{{- end -}}
