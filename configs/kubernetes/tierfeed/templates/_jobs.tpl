{{- /* The jobs of a training: one pod with the manager, and one for each node, whose sidecar is the agent. */ -}}
{{- define "tierfeed.container" }}
                      image: {{ printf "%q" .Values.image }}
                      securityContext:
                        allowPrivilegeEscalation: false
                        readOnlyRootFilesystem: true
                        capabilities: { drop: [ALL] }
{{- end }}

{{- define "tierfeed.token" }}
                        - name: TIERFEED_TOKEN
                          valueFrom: { secretKeyRef: { name: {{ printf "%q" .Values.token }}, key: token } }
{{- end }}

{{- define "tierfeed.pod" }}
                  # No process of a pod asks the cluster anything.
                  automountServiceAccountToken: false
                  securityContext:
                    runAsNonRoot: true
                    runAsUser: {{ .Values.user }}
                    runAsGroup: {{ .Values.user }}
                    fsGroup: {{ .Values.user }}
                    seccompProfile: { type: RuntimeDefault }
                  volumes:
                    - { name: programs, emptyDir: {} }
                    - { name: run, emptyDir: {} }
                    - { name: job, configMap: { name: {{ printf "%q" .Values.job }} } }
                    - { name: dataset, persistentVolumeClaim: { claimName: {{ printf "%q" .Values.dataset.claim }}, readOnly: true } }
{{- end }}

{{- define "tierfeed.mounts" }}
                        - { name: run, mountPath: /run/tierfeed }
                        - { name: job, mountPath: /etc/tierfeed, readOnly: true }
                        - { name: dataset, mountPath: {{ printf "%q" .Values.dataset.path }}, readOnly: true }
{{- end }}

{{- define "tierfeed.jobs" }}
        - name: manager
          template:
            spec:
              # A manager that died comes back; the training goes on meanwhile, and never ends for it.
              backoffLimit: 1000000
              template:
                metadata:
                  labels: { app.kubernetes.io/name: tierfeed, app.kubernetes.io/component: manager }
                spec:
                  restartPolicy: OnFailure
{{- template "tierfeed.pod" . }}
                  containers:
                    - name: manager
{{- template "tierfeed.container" . }}
                      args: [manager, /etc/tierfeed/job.yaml, --listen, "0.0.0.0:{{ .Values.manager.port }}", --run-dir, /run/tierfeed/manager]
                      env:
{{- template "tierfeed.token" . }}
                      ports:
                        - { name: manager, containerPort: {{ .Values.manager.port }} }
                      resources:
                        requests: { cpu: {{ printf "%q" .Values.manager.cpu }}, memory: {{ printf "%q" .Values.manager.memory }} }
                        limits: { memory: {{ printf "%q" .Values.manager.memory }} }
                      volumeMounts:
{{- template "tierfeed.mounts" . }}
        - name: node
          template:
            metadata:
              labels: { trainer.kubeflow.org/trainjob-ancestor-step: trainer }
            spec:
{{- if .Values.jobset.nodes }}
              parallelism: {{ .Values.jobset.nodes }}
              completions: {{ .Values.jobset.nodes }}
              completionMode: Indexed
{{- end }}
              template:
                metadata:
                  labels: { app.kubernetes.io/name: tierfeed, app.kubernetes.io/component: node }
                spec:
                  restartPolicy: Never
{{- template "tierfeed.pod" . }}
                  initContainers:
                    - name: tierfeed-programs
{{- template "tierfeed.container" . }}
                      command: [cp, --recursive, --no-target-directory, /opt/tierfeed, /programs]
                      resources:
                        requests: { cpu: 100m, memory: 64Mi }
                        limits: { memory: 256Mi }
                      volumeMounts:
                        - { name: programs, mountPath: /programs }
                    # No startup probe: the training never waits for the agent longer than `tierfeed exec` does.
                    - name: tierfeed-agent
                      restartPolicy: Always
{{- template "tierfeed.container" . }}
                      args: [agent, --manager, "$(JOBSET_NAME)-manager-0-0.$(JOBSET_NAME):{{ .Values.manager.port }}", --run-dir, /run/tierfeed/agent]
                      env:
                        - name: JOBSET_NAME
                          valueFrom: { fieldRef: { fieldPath: "metadata.labels['jobset.sigs.k8s.io/jobset-name']" } }
{{- template "tierfeed.token" . }}
                        # What the agent measured, for a restart in this pod.
                        - { name: XDG_STATE_HOME, value: /run/tierfeed }
                      resources:
                        requests: { cpu: {{ printf "%q" .Values.agent.cpu }}, memory: {{ printf "%q" .Values.agent.memory }} }
                        limits: { memory: {{ printf "%q" .Values.agent.memory }} }
                      volumeMounts:
{{- template "tierfeed.mounts" . }}
                  containers:
                    - name: node
{{- if .Values.jobset.nodes }}
                      image: {{ printf "%q" .Values.jobset.image }}
                      command: [sh, -c, {{ printf "%q" (print "exec /opt/tierfeed/bin/tierfeed exec -- " .Values.jobset.command) }}]
{{- else }}
                      image: pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime
{{- end }}
                      env:
                        - { name: TIERFEED_RUN_DIR, value: /run/tierfeed/agent }
                        - { name: PYTHONPATH, value: /opt/tierfeed }
{{- if .Values.jobset.nodes }}
                        - name: JOBSET_NAME
                          valueFrom: { fieldRef: { fieldPath: "metadata.labels['jobset.sigs.k8s.io/jobset-name']" } }
                        - name: NODE_RANK
                          valueFrom: { fieldRef: { fieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']" } }
                        - { name: NNODES, value: "{{ .Values.jobset.nodes }}" }
                        - { name: MASTER_ADDR, value: $(JOBSET_NAME)-node-0-0.$(JOBSET_NAME) }
                        - { name: MASTER_PORT, value: "29500" }
{{- end }}
                      volumeMounts:
                        - { name: programs, mountPath: /opt/tierfeed, readOnly: true }
{{- template "tierfeed.mounts" . }}
{{- end }}
