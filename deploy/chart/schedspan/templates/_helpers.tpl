{{- define "schedspan.name" -}}
{{- $name := .Release.Name }}
{{- with .Values.nameOverride }}{{ if not (contains . $name) }}{{ $name = printf "%s-%s" $name . }}{{ end }}{{ end }}
{{- .Values.fullnameOverride | default $name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "schedspan.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace }}
{{- end }}

{{- define "schedspan.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "schedspan.name" .) }}
{{- end }}

{{- define "schedspan.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default "schedspan" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Labels of the daemon's Pods: the last two are the same whatever the chart's names are, and lead `kubectl schedspan` to them. */}}
{{- define "schedspan.podLabels" -}}
{{ include "schedspan.selector" . }}
app.kubernetes.io/component: daemon
app.kubernetes.io/part-of: schedspan
{{- end }}

{{- define "schedspan.affinity" -}}
{{- if .Values.affinity }}
{{- toYaml .Values.affinity }}
{{- else if ne .Values.nodes "all" }}
{{- $operator := ternary "Exists" "DoesNotExist" (eq .Values.nodes "control-plane") -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
    - matchExpressions:
      - key: node-role.kubernetes.io/control-plane
        operator: {{ $operator }}
{{- end }}
{{- end }}

{{- define "schedspan.metadata" -}}
name: {{ include "schedspan.name" . }}
namespace: {{ include "schedspan.namespace" . }}
{{ include "schedspan.labels" . }}
{{- end }}

{{- define "schedspan.labels" -}}
labels:
  {{- include "schedspan.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "schedspan.webhook.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default "schedspan" }}-webhook
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "schedspan.webhook.labels" -}}
labels:
  {{- include "schedspan.webhook.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "schedspan.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "schedspan.capabilities" -}}
{{- $added := list "BPF" "PERFMON" "SYS_PTRACE" }}
{{- if eq .Values.rights "sysAdmin" }}{{ $added = append $added "SYS_ADMIN" }}{{ end }}
{{- toJson $added }}
{{- end }}

{{- define "schedspan.attributes" -}}
k8s.node.name=$(NODE_NAME),host.name=$(NODE_NAME)
{{- range $key, $value := . }},{{ $key }}={{ $value }}{{ end }}
{{- end }}

{{- define "schedspan.trust" -}}
{{- $rules := .rules }}
{{- range .namespaces }}{{ $rules = append $rules (printf "namespace=%s" .) }}{{ end }}
{{- join "," $rules }}
{{- end }}

{{- define "schedspan.environment" -}}
- {name: SCHEDSPAN_LOG, value: {{ .Values.log | quote }}}
- {name: SCHEDSPAN_TRUST, value: {{ include "schedspan.trust" .Values.trust | quote }}}
{{- if ne .Values.nodes "control-plane" }}
- {name: SCHEDSPAN_PROGRAM, value: {{ ternary "kubelet" "kube-scheduler,kubelet" (eq .Values.nodes "workers") | quote }}}
{{- end }}
- {name: SCHEDSPAN_SERVER, value: "http://127.0.0.1:{{ .Values.listen.debug.port }}"}
{{- with .Values.otlp }}
{{- if .endpoint }}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ .endpoint | quote }}}
{{- end }}
- {name: OTEL_EXPORTER_OTLP_PROTOCOL, value: {{ .protocol }}}
{{- with .headersSecret }}
{{- if .name }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom:
    secretKeyRef: {name: {{ .name }}, key: {{ .key }}}
{{- end }}
{{- end }}
{{- if .tls.caSecret.name }}
- {name: OTEL_EXPORTER_OTLP_CERTIFICATE, value: /etc/schedspan/otlp-ca/{{ .tls.caSecret.key }}}
{{- end }}
{{- if .tls.clientSecret.name }}
- {name: OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE, value: /etc/schedspan/otlp-client/tls.crt}
- {name: OTEL_EXPORTER_OTLP_CLIENT_KEY, value: /etc/schedspan/otlp-client/tls.key}
{{- end }}
{{- if .spool.size }}
- {name: SCHEDSPAN_SPOOL, value: /var/lib/schedspan/spool}
- {name: SCHEDSPAN_SPOOL_SIZE, value: {{ .spool.size | quote }}}
{{- end }}
- name: NODE_NAME
  valueFrom:
    fieldRef: {fieldPath: spec.nodeName}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: {{ include "schedspan.attributes" .resourceAttributes | quote }}
{{- end }}
{{- end }}

{{- define "schedspan.security" -}}
readOnlyRootFilesystem: true
{{- if eq .Values.rights "privileged" }}
runAsUser: 0
privileged: true
{{- else }}
runAsUser: {{ int .Values.runAsUser }}
runAsNonRoot: {{ ne (int .Values.runAsUser) 0 }}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
  add: {{ include "schedspan.capabilities" . }}
{{- end }}
{{- end }}
