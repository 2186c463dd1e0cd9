{{- define "weir.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "weir.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "weir.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "weir.name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- define "weir.nodes" -}}
{{- if .Values.autoscaling.enabled }}{{ .Values.autoscaling.maxReplicas }}{{ else }}{{ max 1 (int .Values.replicas) }}{{ end }}
{{- end }}

{{- /* Ports that other pods may reach: a list of name and number. */ -}}
{{- define "weir.ports" -}}
{{- if .Values.existingSecret }}
- {name: http, port: 8080}
{{- end }}
{{- if .Values.gateway.enabled }}
- {name: gateway, port: 8081}
{{- end }}
{{- if .Values.grpc.enabled }}
- {name: grpc, port: 8082}
{{- end }}
{{- if .Values.resp.enabled }}
- {name: resp, port: 6380}
{{- end }}
- {name: metrics, port: 9090}
{{- end }}
