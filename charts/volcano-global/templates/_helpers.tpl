{{- define "vg.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "vg.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "vg.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "vg.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Selector labels of a component: (list $ "webhook"). They must not change between versions. */}}
{{- define "vg.selector" -}}
app.kubernetes.io/name: {{ include "vg.name" (first .) }}
app.kubernetes.io/instance: {{ (first .).Release.Name }}
app.kubernetes.io/component: {{ last . }}
{{- end -}}

{{- define "vg.labels" -}}
{{ include "vg.selector" . }}
app.kubernetes.io/version: {{ (first .).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (first .).Release.Service }}
helm.sh/chart: {{ printf "%s-%s" (first .).Chart.Name (first .).Chart.Version }}
{{- end -}}

{{- define "vg.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{- end -}}
{{- end -}}
{{- end -}}

{{/* Common fields of all pods: (list $ "component" mountsToken). */}}
{{- define "vg.pod" -}}
{{- $root := first . -}}
serviceAccountName: {{ include "vg.fullname" $root }}-{{ index . 1 }}
automountServiceAccountToken: {{ index . 2 }}
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
{{- toYaml . | nindent 0 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "vg.container" -}}
image: {{ include "vg.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* Secret of the administrator's kubeconfig for the Karmada control plane. */}}
{{- define "vg.admin.secret" -}}
{{- $named := .Values.karmada.kubeconfig.secretName -}}
{{- if $named -}}{{ $named }}
{{- else if eq .Values.karmada.preset "Helm" -}}{{ .Values.karmada.name }}-kubeconfig
{{- else if eq .Values.karmada.preset "Scripts" -}}karmada-controller-manager-config
{{- else if eq .Values.karmada.preset "Operator" -}}
{{- .Values.karmada.name }}{{ if not (contains "karmada" .Values.karmada.name) }}-karmada{{ end }}-admin-config
{{- else -}}{{ fail "karmada.preset Custom needs karmada.kubeconfig.secretName" }}
{{- end -}}
{{- end -}}

{{- define "vg.admin.key" -}}
{{- $named := .Values.karmada.kubeconfig.key -}}
{{- if $named -}}{{ $named }}
{{- else if has .Values.karmada.preset (list "Scripts" "Operator") -}}karmada.config
{{- else -}}kubeconfig
{{- end -}}
{{- end -}}

{{- define "vg.admin.volume" -}}
- name: karmada
  secret:
    secretName: {{ include "vg.admin.secret" . }}
    defaultMode: 0440
    items:
    - {key: {{ include "vg.admin.key" . }}, path: {{ base .Values.karmada.kubeconfig.path }}}
{{- end -}}

{{- define "vg.admin.mount" -}}
- {name: karmada, mountPath: {{ dir .Values.karmada.kubeconfig.path }}, readOnly: true}
{{- end -}}

{{/* Users with credentials for the Karmada control plane. The HyperJob controller runs in the controller's process with
its own user. */}}
{{- define "vg.processes" -}}
certs{{ if .Values.console.enabled }} console{{ end }} controller{{ if .Values.hyperjobs.enabled }} hyperjobs{{ end }} webhook
{{- end -}}

{{/* Secret, key and user of a process for the Karmada control plane: (list $ "controller"). */}}
{{- define "vg.secret" -}}
{{- $root := first . -}}
{{- if eq $root.Values.credentials.mode "Provided" -}}
{{- $given := index $root.Values.credentials.provided (last .) | default dict -}}
{{- required (printf "credentials.mode Provided needs credentials.provided.%s.secretName" (last .)) $given.secretName -}}
{{- else -}}
{{ include "vg.fullname" $root }}-{{ last . }}-kubeconfig
{{- end -}}
{{- end -}}

{{- define "vg.key" -}}
{{- $root := first . -}}
{{- $given := index $root.Values.credentials.provided (last .) | default dict -}}
{{- if eq $root.Values.credentials.mode "Provided" -}}{{ $given.key | default "kubeconfig" }}{{- else -}}kubeconfig{{- end -}}
{{- end -}}

{{- define "vg.user" -}}
{{- $root := first . -}}
{{- if eq $root.Values.credentials.mode "Provided" -}}
{{- $given := index $root.Values.credentials.provided (last .) | default dict -}}
{{ $given.user | default (printf "volcano-global-%s" (last .)) }}
{{- else -}}
system:serviceaccount:{{ $root.Values.karmada.namespace }}:volcano-global-{{ last . }}
{{- end -}}
{{- end -}}

{{/* Volume with the kubeconfig of a process; a pod waits until the install Job has written the key.
(list $ "process" "name of the volume") */}}
{{- define "vg.kubeconfig.volume" -}}
- name: {{ last . }}
  secret:
    secretName: {{ include "vg.secret" (initial .) }}
    defaultMode: 0440
    items:
    - {key: {{ include "vg.key" (initial .) }}, path: kubeconfig}
{{- end -}}

{{- define "vg.kubeconfig.mount" -}}
- {name: kubeconfig, mountPath: /etc/volcano-global/kubeconfig, readOnly: true}
{{- end -}}

{{- define "vg.certificate" -}}
{{- if and (eq .Values.certs.mode "External") .Values.certs.secretName -}}{{ .Values.certs.secretName }}
{{- else -}}{{ include "vg.fullname" . }}-webhook-tls
{{- end -}}
{{- end -}}

{{- define "vg.service" -}}
{{ include "vg.fullname" . }}-webhook.{{ .Release.Namespace }}.svc
{{- end -}}

{{- define "vg.url" -}}
{{- if .Values.webhook.url -}}{{ trimSuffix "/" .Values.webhook.url }}
{{- else -}}https://{{ include "vg.service" . }}:{{ .Values.webhook.service.port }}
{{- end -}}
{{- end -}}

{{/* Address that tenants use for the visibility endpoint. */}}
{{- define "vg.visibility.host" -}}
{{ include "vg.fullname" . }}-visibility.{{ .Release.Namespace }}.svc
{{- end -}}

{{- define "vg.visibility.url" -}}
{{- if .Values.visibility.url -}}{{ trimSuffix "/" .Values.visibility.url }}
{{- else -}}https://{{ include "vg.visibility.host" . }}:{{ .Values.visibility.service.port }}
{{- end -}}
{{- end -}}

{{/* Whether the decision logs of the controllers are served to the console, and the name by which it finds all of them. */}}
{{- define "vg.history" -}}
{{- if and .Values.console.enabled .Values.console.history.enabled .Values.controller.decisionLog.enabled }}true{{ end -}}
{{- end -}}

{{/* The PersistentVolumeClaim for decisions that the console has read, if there is one. */}}
{{- define "vg.history.claim" -}}
{{- if include "vg.history" . }}{{ .Values.console.history.claimName }}{{ end -}}
{{- end -}}

{{- define "vg.history.host" -}}
{{ include "vg.fullname" . }}-history.{{ .Release.Namespace }}.svc
{{- end -}}

{{- define "vg.host" -}}
{{- regexReplaceAll ":[0-9]+$" (get (urlParse (include "vg.url" .)) "host") "" | trimPrefix "[" | trimSuffix "]" -}}
{{- end -}}

{{/* Names of the certificate: the host of the URL, the names of the Service, and additional names. */}}
{{- define "vg.names" -}}
{{- $service := include "vg.service" . -}}
{{- $host := include "vg.host" . -}}
{{- $short := printf "%s-webhook.%s" (include "vg.fullname" .) .Release.Namespace -}}
{{- $visibility := list -}}
{{- if .Values.visibility.enabled -}}
{{- $named := regexReplaceAll ":[0-9]+$" (get (urlParse (include "vg.visibility.url" .)) "host") "" | trimPrefix "[" | trimSuffix "]" -}}
{{- $visibility = list (include "vg.visibility.host" .) $named -}}
{{- end -}}
{{- $console := list -}}
{{- if and .Values.console.enabled (not .Values.console.tls.secretName) -}}
{{- $own := printf "%s-console.%s.svc" (include "vg.fullname" .) .Release.Namespace -}}
{{- $named := regexReplaceAll ":[0-9]+$" (get (urlParse (default (printf "https://%s" $own) .Values.console.url)) "host") "" | trimPrefix "[" | trimSuffix "]" -}}
{{- $console = list $own $named -}}
{{- end -}}
{{- if include "vg.history" . -}}
{{- $console = append $console (include "vg.history.host" .) -}}
{{- end -}}
{{- range (concat (list $host $short $service (printf "%s.cluster.local" $service)) $visibility $console .Values.webhook.extraNames) | uniq }}
- {{ ternary "--ip" "--dns" (regexMatch "^([0-9]+\\.){3}[0-9]+$|:" .) }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Arguments of `python -m certs` for the install Job and the rotation CronJobs. */}}
{{- define "vg.certs.args" -}}
- --secret-namespace
- {{ .Release.Namespace | quote }}
- --secret-name
- {{ include "vg.certificate" . }}
{{- if eq .Values.certs.mode "External" }}
- --external
{{- else }}
- --authority-days
- {{ .Values.certs.authorityDays | quote }}
- --leaf-days
- {{ .Values.certs.leafDays | quote }}
{{- include "vg.names" . }}
{{- end }}
{{- end -}}

{{/* Arguments for publishing the CA bundle: (list $ "path of the kubeconfig"). */}}
{{- define "vg.certs.published" -}}
- --webhook-configuration
- volcano-global
- --kubeconfig
- {{ last . }}
- --replica
- {{ include "vg.fullname" (first .) }}-webhook-replicas.{{ (first .).Release.Namespace }}.svc:{{ (first .).Values.webhook.port }}
{{- end -}}

{{- define "vg.accounts" -}}
{{- $root := . -}}
{{- if eq .Values.credentials.mode "Issued" }}
- --namespace
- {{ .Values.karmada.namespace | quote }}
- --host-namespace
- {{ .Release.Namespace | quote }}
- --token-days
- {{ .Values.credentials.tokenDays | quote }}
{{- range splitList " " (include "vg.processes" .) }}
- --account
- volcano-global-{{ . }}={{ include "vg.secret" (list $root .) }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The VolcanoGlobalConfiguration of controller and webhook. */}}
{{- define "vg.admission" -}}
apiVersion: config.volcano-global.io/v1alpha1
kind: VolcanoGlobalConfiguration
{{ toYaml .Values.admission }}
{{- end -}}

{{/* The Secret with the certificates for scheduler estimators, if they are used. */}}
{{- define "vg.estimator.secret" -}}
{{- if eq (default "None" .Values.admission.nodeEstimates) "Estimator" }}{{ .Values.controller.estimator.secretName }}{{ end -}}
{{- end -}}

{{/* The gated kinds for the match condition of the webhook, as group/kind. */}}
{{- define "vg.kinds" -}}
{{- $kinds := list "'batch.volcano.sh/Job'" -}}
{{- range .Values.admission.integrations -}}
{{- $parts := splitList "/" .apiVersion -}}
{{- $group := ternary (first $parts) "" (gt (len $parts) 1) -}}
{{- $kinds = append $kinds (printf "'%s/%s'" $group .kind) -}}
{{- end -}}
[{{ $kinds | uniq | join ", " }}]
{{- end -}}

{{/* Names of the ResourceClaimTemplates in the configuration. */}}
{{- define "vg.claims" -}}
{{- $names := list -}}
{{- range .Values.admission.resourceClaimTemplates -}}
{{- $names = append $names (printf "'%s'" .name) -}}
{{- end -}}
[{{ $names | join ", " }}]
{{- end -}}

{{/* A file with objects for the Karmada control plane, adapted to the values. */}}
{{- define "vg.object" -}}
{{- $root := first . -}}
{{- $text := $root.Files.Get (last .) -}}
{{- range list "controller" "webhook" "certs" "hyperjobs" "console" -}}
{{- if or (ne . "console") $root.Values.console.enabled -}}
{{- $text = $text | replace (printf "kind: User, name: volcano-global-%s}" .) (printf "kind: User, name: '%s'}" (include "vg.user" (list $root .))) -}}
{{- end -}}
{{- end -}}
{{- $text | replace "namespace: karmada-system" (printf "namespace: %q" $root.Values.karmada.namespace)
  | replace "https://webhook.invalid" (include "vg.url" $root)
  | replace "['batch.volcano.sh/Job']" (include "vg.kinds" $root)
  | replace "['resource-claim-template']" (include "vg.claims" $root) -}}
{{- end -}}

{{/* The webhook configurations, without the webhooks of kinds that are left to others. */}}
{{- define "vg.webhooks" -}}
{{- $others := list -}}
{{- if not .Values.hyperjobs.enabled -}}{{- $others = append $others "hyperjobs.volcano-global.io" -}}{{- end -}}
{{- if not .Values.dataSources.enabled -}}{{- $others = append $others "datasourceclaims.volcano-global.io" -}}{{- end -}}
{{- range regexSplit "(?m)^---$" (include "vg.object" (list . "files/webhooks.yaml")) -1 -}}
{{- $configuration := fromYaml . -}}
{{- $webhooks := list -}}
{{- range $configuration.webhooks -}}
{{- if not (has .name $others) -}}{{- $webhooks = append $webhooks . -}}{{- end -}}
{{- end }}
---
{{ set $configuration "webhooks" $webhooks | toYaml }}
{{- end -}}
{{- end -}}

{{- define "vg.affinity" -}}
{{- $given := last . -}}
{{- if $given }}
affinity:
{{- toYaml $given | nindent 2 }}
{{- else }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
{{- include "vg.selector" (initial .) | nindent 12 }}
{{- end }}
{{- end -}}

{{/* Spread of pods; without a labelSelector it applies to those of the component: (list $ "component" constraints). */}}
{{- define "vg.spread" -}}
{{- $own := dict "matchLabels" (include "vg.selector" (initial .) | fromYaml) -}}
{{- with last . }}
topologySpreadConstraints:
{{- range . }}
- {{- set (deepCopy .) "labelSelector" (default $own .labelSelector) | toYaml | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Scheduling of pods: (list $ "component" values). */}}
{{- define "vg.placement" -}}
{{- with (last .) }}
{{- with .nodeSelector }}
nodeSelector:
{{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}
{{- end -}}
