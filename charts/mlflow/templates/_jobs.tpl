{{/* A CronJob. Called with a dict of root, name (behind that of the server), job (its values), sources (of trust), program (in
Python), args (of it), env as YAML, and config: whether it reads the file of trace archival. */}}
{{- define "mlflow.cronJob" -}}
{{- $root := .root -}}
{{- $name := include "mlflow.name" $root -}}
{{- $app := printf "%s-%s" $name .name -}}
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {{ $app }}
  namespace: {{ include "mlflow.namespace" $root }}
  labels:
    {{- include "mlflow.labels" (list $root $app) | nindent 4 }}
spec:
  schedule: {{ .job.schedule | quote }}
  suspend: {{ $root.Values.jobs.suspend }}
  concurrencyPolicy: Forbid
  startingDeadlineSeconds: {{ $root.Values.jobs.startingDeadlineSeconds }}
  successfulJobsHistoryLimit: 3
  failedJobsHistoryLimit: 3
  jobTemplate:
    metadata:
      labels:
        {{- include "mlflow.labels" (list $root $app) | nindent 8 }}
    spec:
      backoffLimit: 1
      activeDeadlineSeconds: {{ $root.Values.jobs.activeDeadlineSeconds }}
      template:
        metadata:
          labels:
            {{- include "mlflow.podLabels" (list $root $app dict) | nindent 12 }}
        spec:
          restartPolicy: Never
          serviceAccountName: {{ .job.serviceAccount.name }}
          automountServiceAccountToken: true
          securityContext:
            {{- toYaml $root.Values.podSecurityContext | nindent 12 }}
          {{- if .sources }}
          initContainers:
            {{- include "mlflow.trustInit" . | nindent 10 }}
          {{- end }}
          containers:
          - name: mlflow-{{ .name }}
            image: {{ include "mlflow.image" $root | quote }}
            {{- with $root.Values.image.imagePullPolicy }}
            imagePullPolicy: {{ . }}
            {{- end }}
            command: ["/bin/sh", "-ec"]
            args:
              {{- toYaml (concat (list (include "mlflow.python" $root) .program) .args) | nindent 12 }}
            env:
              {{- .env | nindent 12 }}
            {{- with $root.Values.envFrom }}
            envFrom:
              {{- toYaml . | nindent 12 }}
            {{- end }}
            resources:
              {{- toYaml .job.resources | nindent 14 }}
            securityContext:
              {{- toYaml $root.Values.securityContext | nindent 14 }}
            volumeMounts:
            - {name: tmp, mountPath: /tmp}
            {{- if $root.Values.storage.enabled }}
            - {name: mlflow-storage, mountPath: /mlflow}
            {{- end }}
            {{- if .sources }}
            - {name: combined-ca-bundle, mountPath: {{ dir $root.Values.caBundle.outputPath }}, readOnly: true}
            {{- end }}
            {{- if .config }}
            - {name: trace-archival-config, mountPath: /etc/mlflow, readOnly: true}
            {{- end }}
          volumes:
          - name: tmp
            emptyDir: {sizeLimit: {{ $root.Values.temporaryStorage.sizeLimit }}}
          {{- if $root.Values.storage.enabled }}
          - name: mlflow-storage
            persistentVolumeClaim: {claimName: {{ $name }}-pvc}
          {{- end }}
          {{- if .sources }}
            {{- include "mlflow.trustVolumes" . | nindent 10 }}
          {{- end }}
          {{- if .config }}
          - name: trace-archival-config
            configMap: {name: {{ $name }}-trace-archival-config}
          {{- end }}
          {{- with $root.Values.nodeSelector }}
          nodeSelector:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with $root.Values.tolerations }}
          tolerations:
            {{- toYaml . | nindent 10 }}
          {{- end }}
          {{- with include "mlflow.jobAffinity" $root | fromYaml }}
          affinity:
            {{- toYaml . | nindent 12 }}
          {{- end }}
{{- end -}}

{{/* Where a job runs: on the server's node if only one node can have the volume, else wherever the server may. */}}
{{- define "mlflow.jobAffinity" -}}
{{- $affinity := deepCopy .Values.affinity -}}
{{- $modes := get .Values.storage.spec "accessModes" | default (list .Values.storage.accessMode) -}}
{{- if and .Values.storage.enabled (not (has "ReadWriteMany" $modes)) -}}
{{- $near := dict "labelSelector" (dict "matchLabels" (dict "app" (include "mlflow.name" .))) "topologyKey" "kubernetes.io/hostname" -}}
{{- $pods := get $affinity "podAffinity" | default dict -}}
{{- $rules := get $pods "requiredDuringSchedulingIgnoredDuringExecution" | default list -}}
{{- $_ := set $pods "requiredDuringSchedulingIgnoredDuringExecution" (append $rules $near) -}}
{{- $_ = set $affinity "podAffinity" $pods -}}
{{- end -}}
{{- toYaml $affinity -}}
{{- end -}}

{{/* Runs the program that follows, with its arguments, in the Python that has MLflow: images may have several. */}}
{{- define "mlflow.python" -}}
for python in python3 python3.12 python; do
  if "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("mlflow") is None)' 2>/dev/null; then
    exec "$python" -c "$0" "$@"
  fi
done
echo "No Python of the image has MLflow." >&2
exit 127
{{- end -}}
