{{- define "dejaq.selector" -}}
app.kubernetes.io/name: dejaq
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "dejaq.labels" -}}
{{ include "dejaq.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "dejaq.size" -}}
{{- toJson (get .Values.sizes .Values.size | required (printf "size: one of %s, got: %s" (keys .Values.sizes | sortAlpha | join ", ") .Values.size)) -}}
{{- end }}

{{- define "dejaq.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "dejaq.tlsSecret" -}}
{{ .Values.tls.secretName | default (printf "%s-tls" .Release.Name) }}
{{- end }}

{{/* Names by which services reach the broker's HTTP port, which count while there are no API keys. */}}
{{- define "dejaq.httpNames" -}}
{{- $http := printf "%s-http" .Release.Name -}}
{{- list .Release.Name $http (printf "%s.%s" $http .Release.Namespace) (printf "%s.%s.svc" $http .Release.Namespace) (printf "%s.%s.svc.cluster.local" $http .Release.Namespace) | join "," -}}
{{- end }}

{{/* The settings of every broker; what differs between them is in the environment. */}}
{{- define "dejaq.settings" -}}
{{- $server := dict "host" "0.0.0.0" "port" 7464 "http_port" 7465 "http_names" (include "dejaq.httpNames" .) -}}
{{- $made := dict "journal" (dict "url" "/var/lib/dejaq/data") "server" $server "log" (dict "format" "json") -}}
{{- if .Values.tls.enabled -}}
{{- $_ := set $server "tls_certificate" "/etc/dejaq-tls/tls.crt" -}}
{{- $_ := set $server "tls_key" "/etc/dejaq-tls/tls.key" -}}
{{- if .Values.tls.clientCertificates -}}
{{- $_ := set $server "tls_client_ca" "/etc/dejaq-tls/ca.crt" -}}
{{- end -}}
{{- if gt (int .Values.brokers) 1 -}}
{{- $_ := set $made "cluster" (dict "tls_ca" "/etc/dejaq-tls/ca.crt") -}}
{{- end -}}
{{- end -}}
{{- if .Values.encryption.secretName -}}
{{- $_ := set $made "encryption" (dict "master_key" "file:/etc/dejaq-encryption/key") -}}
{{- end -}}
{{- mergeOverwrite $made (deepCopy .Values.settings) | toToml -}}
{{- end }}

{{/* How a probe asks: over HTTP, over TLS, or as a command that has a certificate to show. */}}
{{- define "dejaq.probe" -}}
{{- if and .root.Values.tls.enabled .root.Values.tls.clientCertificates -}}
exec:
  command:
    - python3
    - -c
    - >-
      import ssl, urllib.request;
      tls = ssl.create_default_context();
      tls.check_hostname = False;
      tls.verify_mode = ssl.CERT_NONE;
      tls.load_cert_chain("/etc/dejaq-tls/tls.crt", "/etc/dejaq-tls/tls.key");
      urllib.request.urlopen("https://127.0.0.1:7465{{ .path }}", timeout=4, context=tls)
{{- else -}}
httpGet:
  path: {{ .path }}
  port: http
  {{- if .root.Values.tls.enabled }}
  scheme: HTTPS
  {{- end }}
{{- end -}}
{{- end }}

{{/* The environment that a command in a broker's pod needs to reach it. */}}
{{- define "dejaq.client" -}}
{{- if .Values.tls.enabled -}}
DEJAQ_URL=dejaqs://localhost:7464 DEJAQ_TLS_CA=/etc/dejaq-tls/ca.crt {{ if .Values.tls.clientCertificates -}}
DEJAQ_TLS_CERTIFICATE=/etc/dejaq-tls/tls.crt DEJAQ_TLS_KEY=/etc/dejaq-tls/tls.key {{ end -}}
{{- end -}}
{{- end }}
