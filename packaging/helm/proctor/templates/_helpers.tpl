{{- define "proctor.name" -}}
{{- printf "%s-proctor" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "proctor.labels" -}}
app.kubernetes.io/name: proctor
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
