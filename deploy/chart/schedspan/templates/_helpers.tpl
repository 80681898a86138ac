{{- define "schedspan.name" -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "schedspan.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "schedspan.name" .) }}
{{- end }}

{{- define "schedspan.selector" -}}
app.kubernetes.io/name: schedspan
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "schedspan.metadata" -}}
name: {{ include "schedspan.name" . }}
namespace: {{ .Release.Namespace }}
{{ include "schedspan.labels" . }}
{{- end }}

{{- define "schedspan.labels" -}}
labels:
  {{- include "schedspan.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "schedspan.webhook.selector" -}}
app.kubernetes.io/name: schedspan-webhook
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
