{{- define "mcpproxy.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "mcpproxy.selector" -}}
app.kubernetes.io/name: mcpproxy
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "mcpproxy.labels" -}}
{{ include "mcpproxy.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}
