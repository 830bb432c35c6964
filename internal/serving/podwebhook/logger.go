// SPDX-License-Identifier: Apache-2.0

package podwebhook

import (
	"cmp"
	"encoding/csv"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
)

const (
	loggerAccount  = "logger-sa"
	loggerCAVolume = "agent-ca-bundle"
	loggerCAPath   = "/etc/tls/logger"
)

// logger is how the payloads of one pod are logged.
type logger struct{ config.Logger }

// loggerFor is what the platform says, and over it what the pod's own component
// says, and over that its canary.
func loggerFor(pod *corev1.Pod, isvc *v1beta1.InferenceService, cfg config.Logger) *logger {
	l := &logger{cfg}
	if isvc == nil {
		return l
	}
	switch spec := isvc.Spec; v1beta1.ComponentType(pod.Labels[v1beta1.LabelComponent]) {
	case v1beta1.TransformerComponent:
		if spec.Transformer != nil {
			l.overlay(spec.Transformer.Logger)
		}
	case v1beta1.ExplainerComponent:
		if spec.Explainer != nil {
			l.overlay(spec.Explainer.Logger)
		}
	default:
		l.overlay(spec.Predictor.Logger)
		for i := range spec.Canary {
			canary := &spec.Canary[i].Predictor
			if pod.Labels[v1beta1.LabelApp] == "isvc."+isvc.Name+"-"+canary.Name+"-predictor" {
				l.overlay(canary.Logger)
			}
		}
	}
	return l
}

func (l *logger) overlay(spec *v1beta1.LoggerSpec) {
	if spec == nil {
		return
	}
	if spec.Storage != nil {
		l.Storage = spec.Storage
	}
	if spec.MarshallerURL != nil {
		l.MarshallerURL = *spec.MarshallerURL
	}
	if spec.BatchSize != nil {
		l.BatchSize = *spec.BatchSize
	}
	if spec.BatchInterval != nil {
		l.BatchInterval = *spec.BatchInterval
	}
}

// account is whose credentials the storage of the log needs.
func (l *logger) account() string { return cmp.Or(l.Storage.ServiceAccountName, loggerAccount) }

func (l *logger) args(pod *corev1.Pod, namespace string) []string {
	annotation := func(key, fallback string) string {
		if v, ok := pod.Annotations[key]; ok {
			return v
		}
		return fallback
	}
	args := []string{
		"--log-url", annotation(v1beta1.AnnotationLoggerSinkURL, l.DefaultURL),
		"--source-uri", pod.Name,
		"--log-mode", annotation(v1beta1.AnnotationLoggerMode, string(v1beta1.LogAll)),
		"--inference-service", pod.Labels[v1beta1.LabelInferenceService],
		"--namespace", namespace,
		"--endpoint", pod.Labels["endpoint"],
		"--component", pod.Labels[v1beta1.LabelComponent],
	}
	args = append(args, l.storageArgs()...)
	args = flags(pod, args, [2]string{"--metadata-headers", v1beta1.AnnotationLoggerHeaders})
	if keys, ok := pod.Annotations[v1beta1.AnnotationLoggerAnnotations]; ok {
		args = append(args, "--metadata-annotations", valuesOf(pod, keys))
	}
	if l.CACertFile != "" {
		args = append(args, "--logger-ca-cert-file", l.CACertFile)
	}
	return append(args, "--logger-tls-skip-verify", strconv.FormatBool(l.TLSSkipVerify))
}

// storageArgs tell where entries are stored and how many together.
func (l *logger) storageArgs() []string {
	var args []string
	add := func(flag, value string) {
		if value != "" {
			args = append(args, flag, value)
		}
	}
	if s := l.Storage; s != nil {
		if s.Path != nil {
			add("--log-store-path", *s.Path)
		}
		add("--log-store-format", s.Parameters["format"])
	}
	add("--log-marshaller-url", l.MarshallerURL)
	if l.BatchSize != 0 {
		add("--log-batch-size", strconv.Itoa(l.BatchSize))
	}
	add("--log-batch-interval", l.BatchInterval)
	return args
}

// valuesOf lists annotations of the pod with their values, in the form in which
// agents read lists: a value with a comma is quoted. One that the pod does not have
// is left out.
func valuesOf(pod *corev1.Pod, keys string) string {
	var pairs []string
	for key := range strings.SplitSeq(keys, ",") {
		if value, ok := pod.Annotations[key]; ok {
			pairs = append(pairs, key+"="+value)
		}
	}
	if len(pairs) == 0 {
		return ""
	}
	var out strings.Builder
	list := csv.NewWriter(&out)
	_ = list.Write(pairs) // a builder takes everything
	list.Flush()
	return strings.TrimSuffix(out.String(), "\n")
}

// mountCertificates lets the agent trust the receiver. The ConfigMap need not
// exist, as the log is not worth a pod that does not start.
func (l *logger) mountCertificates(pod *corev1.Pod, agent *corev1.Container) {
	if l.CABundle == "" {
		return
	}
	addVolume(pod, loggerCAVolume, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: l.CABundle}, Optional: new(true),
	}})
	agent.VolumeMounts = append(agent.VolumeMounts, corev1.VolumeMount{Name: loggerCAVolume, MountPath: loggerCAPath, ReadOnly: true})
}
