// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

func TestParseReadsEveryKey(t *testing.T) {
	for name, test := range map[string]struct {
		key, raw string
		want     func(*Config)
	}{
		"explainers": {KeyExplainers, `{"art":{"image":"r/art","defaultImageVersion":"v1"}}`, func(c *Config) {
			c.Explainers.Art = Explainer{Image: "r/art", DefaultImageVersion: "v1"}
		}},
		"inferenceService": {KeyInferenceService, `{"serviceAnnotationDisallowedList":["a/b"],
			"serviceLabelDisallowedList":["c"],
			"resource":{"cpuLimit":"2","memoryLimit":"2Gi","cpuRequest":"1","memoryRequest":"1Gi"}}`, func(c *Config) {
			c.InferenceService = InferenceService{
				ServiceAnnotationDisallowedList: []string{"a/b"}, ServiceLabelDisallowedList: []string{"c"},
				Resource: resources("1", "2", "1Gi", "2Gi"),
			}
		}},
		"multiNode": {KeyMultiNode, `{"customGPUResourceTypeList":["custom.com/gpu"]}`, func(c *Config) {
			c.MultiNode.CustomGPUResourceTypeList = []string{"custom.com/gpu"}
		}},
		"collector": {KeyOpenTelemetryCollector, `{"scrapeInterval":"1m30s","metricReceiverEndpoint":"a:1",
			"metricScalerEndpoint":"b:2","resource":{"cpuLimit":"500m"}}`, func(c *Config) {
			c.OpenTelemetryCollector.ScrapeInterval = "1m30s"
			c.OpenTelemetryCollector.MetricReceiverEndpoint = "a:1"
			c.OpenTelemetryCollector.MetricScalerEndpoint = "b:2"
			c.OpenTelemetryCollector.Resource.CPULimit = resource.MustParse("500m")
		}},
		"autoscaler in quotes": {KeyAutoscaler, `{"scaleUpStabilizationWindowSeconds":"30","scaleDownStabilizationWindowSeconds":"0"}`,
			func(c *Config) {
				c.Autoscaler = Autoscaler{ScaleUpStabilizationWindowSeconds: 30, ScaleDownStabilizationWindowSeconds: 0}
			}},
		"autoscaler as numbers": {KeyAutoscaler, `{"scaleUpStabilizationWindowSeconds":30}`, func(c *Config) {
			c.Autoscaler.ScaleUpStabilizationWindowSeconds = 30
		}},
		"storageInitializer": {KeyStorageInitializer, `{"image":"i:1","command":["/c","d",""],"memoryRequest":"200Mi","caBundleConfigMapName":"ca",
			"caBundleVolumeMountPath":"/certs","enableModelcar":true,"enableOciModelSupport":true,"ociModelMode":"native",
			"cpuModelcar":"20m","memoryModelcar":"30Mi","uidModelcar":1010,"ociInsecureRegistry":true}`, func(c *Config) {
			s := &c.StorageInitializer
			s.Image, s.Command, s.MemoryRequest = "i:1", []string{"/c", "d"}, resource.MustParse("200Mi")
			s.CABundleConfigMapName, s.CABundleVolumeMountPath = "ca", "/certs"
			s.EnableModelcar, s.EnableOCIModelSupport, s.OCIModelMode = true, true, OCINative
			s.CPUModelcar, s.MemoryModelcar = resource.MustParse("20m"), resource.MustParse("30Mi")
			s.UIDModelcar, s.OCIInsecureRegistry = ptr.To[int64](1010), true
		}},
		"empty and null mean the default": {KeyStorageInitializer, `{"cpuModelcar":"","memoryModelcar":null,"cpuLimit":null,
			"uidModelcar":null,"image":""}`, func(*Config) {}},
		"credentials": {KeyCredentials, `{"s3":{"s3AccessKeyIDName":"AWS_ACCESS_KEY_ID","s3SecretAccessKeyName":"AWS_SECRET_ACCESS_KEY",
			"s3Endpoint":"s3.example.com","s3UseHttps":"0","s3Region":"eu","s3VerifySSL":"1","s3UseVirtualBucket":"true",
			"s3UseAccelerate":"false","s3UseAnonymousCredential":"true","s3CABundleConfigMap":"ca","s3CABundle":"/x"},
			"gcs":{"gcsCredentialFileName":"g.json"},"storageSpecSecretName":"mine","storageSecretNameAnnotation":"x.io/secret"}`,
			func(c *Config) {
				c.Credentials = Credentials{
					S3: S3{
						S3AccessKeyIDName: "AWS_ACCESS_KEY_ID", S3SecretAccessKeyName: "AWS_SECRET_ACCESS_KEY", S3Endpoint: "s3.example.com",
						S3UseHTTPS: "0", S3Region: "eu", S3VerifySSL: "1", S3UseVirtualBucket: "true", S3UseAccelerate: "false",
						S3UseAnonymousCredential: "true", S3CABundleConfigMap: "ca", S3CABundle: "/x",
					},
					GCS:                   GCS{GCSCredentialFileName: "g.json"},
					StorageSpecSecretName: "mine", StorageSecretNameAnnotation: "x.io/secret",
				}
			}},
		"ingress": {KeyIngress, `{"enableGatewayApi":true,"kserveIngressGateway":"ns/gw","ingressGateway":"a/b","localGateway":"c/d",
			"localGatewayService":"local.svc","ingressDomain":"models.org","ingressClassName":"nginx","additionalIngressDomains":["b.org"],"allowedAnnotations":["a.org/*"],
			"domainTemplate":"{{ .Name }}.{{ .IngressDomain }}","urlScheme":"https","enableLLMInferenceServiceTLS":true,
			"disableIstioVirtualHost":true,"pathTemplate":"/s/{{ .Namespace }}/{{ .Name }}","disableIngressCreation":true,
			"disableHTTPRouteTimeout":true,"modelBasedRoutingHeaderName":"X-Model","modelBasedRoutingMode":"Forced"}`, func(c *Config) {
			c.Ingress = Ingress{
				EnableGatewayAPI: true, KServeIngressGateway: "ns/gw", IngressGateway: "a/b", KnativeLocalGatewayService: "local.svc",
				LocalGateway: "c/d", LocalGatewayService: "local.svc", IngressDomain: "models.org", IngressClassName: ptr.To("nginx"),
				AdditionalIngressDomains: []string{"b.org"}, AllowedAnnotations: []string{"a.org/*"}, DomainTemplate: "{{ .Name }}.{{ .IngressDomain }}", URLScheme: "https",
				EnableLLMInferenceServiceTLS: true, DisableIstioVirtualHost: true, PathTemplate: "/s/{{ .Namespace }}/{{ .Name }}",
				DisableIngressCreation: true, DisableHTTPRouteTimeout: true, ModelBasedRoutingHeaderName: "X-Model",
				ModelBasedRoutingMode: RoutingForced,
			}
		}},
		"ingress with defaults": {KeyIngress, `{"ingressGateway":"a/b","kserveIngressGateway":"Not A Gateway"}`, func(c *Config) {
			c.Ingress.IngressGateway, c.Ingress.KServeIngressGateway = "a/b", "Not A Gateway"
		}},
		"ingress with a Knative local gateway": {KeyIngress, `{"ingressGateway":"a/b","localGatewayService":"l","knativeLocalGatewayService":"k"}`,
			func(c *Config) {
				c.Ingress.IngressGateway, c.Ingress.LocalGatewayService, c.Ingress.KnativeLocalGatewayService = "a/b", "l", "k"
			}},
		"templates may use labels, annotations and conditions": {KeyIngress, `{"ingressGateway":"a/b",
			"domainTemplate":"{{ with .Annotations.host }}{{ . }}{{ else }}{{ .Name }}{{ end }}{{ if .Labels.team }}.t{{ end }}.{{ .IngressDomain }}"}`,
			func(c *Config) {
				c.Ingress.IngressGateway = "a/b"
				c.Ingress.DomainTemplate = "{{ with .Annotations.host }}{{ . }}{{ else }}{{ .Name }}{{ end }}{{ if .Labels.team }}.t{{ end }}.{{ .IngressDomain }}"
			}},
		"logger": {KeyLogger, `{"image":"l:1","defaultUrl":"https://sink:8080/x","caBundle":"ca","caCertFile":"c.pem","tlsSkipVerify":true,
			"storage":{"path":"/p","key":"k","serviceAccountName":"sa","parameters":{"type":"s3"}},"marshallerUrl":"http://m:9083",
			"batchSize":10,"batchInterval":"5s"}`, func(c *Config) {
			l := &c.Logger
			l.Image, l.DefaultURL, l.CABundle, l.CACertFile, l.TLSSkipVerify = "l:1", "https://sink:8080/x", "ca", "c.pem", true
			l.MarshallerURL, l.BatchSize, l.BatchInterval = "http://m:9083", 10, "5s"
			l.Storage = &v1beta1.LoggerStorageSpec{ServiceAccountName: "sa"}
			l.Storage.Path, l.Storage.StorageKey = ptr.To("/p"), ptr.To("k")
			l.Storage.Parameters = map[string]string{"type": "s3"}
		}},
		"batcher": {KeyBatcher, `{"maxBatchSize":"64","maxLatency":"100","cpuRequest":"500m"}`, func(c *Config) {
			c.Batcher.MaxBatchSize, c.Batcher.MaxLatency, c.Batcher.CPURequest = 64, 100, resource.MustParse("500m")
		}},
		"agent": {KeyAgent, `{"image":"a:1","command":["/c","d"],"memoryLimit":"2Gi"}`, func(c *Config) {
			c.Agent.Image, c.Agent.Command, c.Agent.MemoryLimit = "a:1", []string{"/c", "d"}, resource.MustParse("2Gi")
		}},
		"router": {KeyRouter, `{"image":"r:1","command":["/c","r"],"headers":{"propagate":["Authorization","X-.*"]},"imagePullPolicy":"Always",
			"imagePullSecrets":["pull"],"caBundle":"ca","enableTls":"true","enableAuth":true}`, func(c *Config) {
			c.Router.CABundle, c.Router.EnableTLS, c.Router.EnableAuth = "ca", true, true
			c.Router.Image, c.Router.Headers.Propagate = "r:1", []string{"Authorization", "X-.*"}
			c.Router.Command = []string{"/c", "r"}
			c.Router.ImagePullPolicy, c.Router.ImagePullSecrets = "Always", []string{"pull"}
		}},
		"deploy Serverless":    {KeyDeploy, `{"defaultDeploymentMode":"Serverless"}`, func(c *Config) { c.Deploy.DefaultDeploymentMode = ModeKnative }},
		"deploy Knative":       {KeyDeploy, `{"defaultDeploymentMode":"Knative"}`, func(c *Config) { c.Deploy.DefaultDeploymentMode = ModeKnative }},
		"deploy RawDeployment": {KeyDeploy, `{"defaultDeploymentMode":"RawDeployment"}`, func(*Config) {}},
		"deploy ModelMesh":     {KeyDeploy, `{"defaultDeploymentMode":"ModelMesh"}`, func(c *Config) { c.Deploy.DefaultDeploymentMode = ModeModelMesh }},
		"deploy with a rollout": {KeyDeploy, `{"defaultDeploymentMode":"Standard",
			"deploymentRolloutStrategy":{"defaultRollout":{"maxSurge":"1","maxUnavailable":"10%"}}}`, func(c *Config) {
			c.Deploy.DeploymentRolloutStrategy.DefaultRollout = DefaultRollout{
				MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromString("10%")),
			}
		}},
		"metricsAggregator": {KeyMetricsAggregator, `{"enableMetricAggregation":"true","enablePrometheusScraping":true}`, func(c *Config) {
			c.MetricsAggregator = MetricsAggregator{EnableMetricAggregation: true, EnablePrometheusScraping: true}
		}},
		"localModel": {KeyLocalModel, `{"enabled":true,"jobNamespace":"jobs","defaultJobImage":"j:1","fsGroup":1000,
			"jobTTLSecondsAfterFinished":60,"reconcilationFrequencyInSecs":30,"disableVolumeManagement":true}`, func(c *Config) {
			c.LocalModel = LocalModel{
				Enabled: true, JobNamespace: "jobs", DefaultJobImage: "j:1", FSGroup: ptr.To[int64](1000), JobTTLSecondsAfterFinished: 60,
				ReconcilationFrequencyInSecs: 30, DisableVolumeManagement: true,
			}
		}},
		"security": {KeySecurity, `{"autoMountServiceAccountToken":true}`, func(c *Config) { c.Security.AutoMountServiceAccountToken = true }},
		"service":  {KeyService, `{"serviceClusterIPNone":true}`, func(c *Config) { c.Service.ServiceClusterIPNone = true }},
		"scheduler": {KeyScheduler, `{"expirationAnnotations":["x.io/until"]}`, func(c *Config) {
			c.Scheduler.ExpirationAnnotations = []string{"x.io/until"}
		}},
		"scheduler without annotations": {KeyScheduler, `{"expirationAnnotations":[]}`, func(*Config) {}},
		"wva": {KeyWVA, `{"prometheus":{"url":"https://p:9090","tlsInsecureSkipVerify":true,"authModes":"bearer",
			"triggerAuthName":"t","triggerAuthKind":"ClusterTriggerAuthentication"}}`, func(c *Config) {
			c.WVA.Prometheus = WVAPrometheus{
				URL: "https://p:9090", TLSInsecureSkipVerify: true, AuthModes: "bearer", TriggerAuthName: "t",
				TriggerAuthKind: "ClusterTriggerAuthentication",
			}
		}},
		"names in other case": {KeyAgent, `{"Image":"a:1"}`, func(c *Config) { c.Agent.Image = "a:1" }},
		"a key of nobody":     {"_example", `this is no JSON`, func(*Config) {}},
	} {
		t.Run(name, func(t *testing.T) {
			want := Default()
			test.want(want)
			got, problems := Parse(map[string]string{test.key: test.raw}, nil)
			if diff := cmp.Diff([]Problem(nil), problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		key, raw string
		// says are parts of the message.
		says []string
	}{
		"nothing":                    {KeyAgent, " \n", []string{"empty"}},
		"no JSON":                    {KeyAgent, "{\n\"image\": x}", []string{"not valid JSON", "line 2"}},
		"an end too early":           {KeyAgent, `{"image":"a"`, []string{"ends too early"}},
		"text after the end":         {KeyAgent, `{} {}`, []string{"after the end"}},
		"no object":                  {KeyAgent, `["a"]`, []string{"a list", "JSON object"}},
		"null":                       {KeyAgent, `null`, []string{"null", "JSON object"}},
		"no quantity":                {KeyAgent, `{"cpuRequest":"lots"}`, []string{`cpuRequest: "lots" is no quantity`}},
		"a quantity that is a list":  {KeyAgent, `{"cpuRequest":[]}`, []string{"cpuRequest: is a list"}},
		"a negative quantity":        {KeyAgent, `{"memoryLimit":"-1Gi"}`, []string{"memoryLimit", "negative"}},
		"two faults":                 {KeyAgent, `{"memoryLimit":"x","cpuLimit":"y"}`, []string{"memoryLimit", "cpuLimit"}},
		"a request over its limit":   {KeyAgent, `{"cpuRequest":"2","cpuLimit":"1"}`, []string{"cpuRequest: is more than cpuLimit (1)"}},
		"memory over its limit":      {KeyLogger, `{"memoryRequest":"2Gi"}`, []string{"memoryRequest: is more than memoryLimit"}},
		"a nested quantity":          {KeyInferenceService, `{"resource":{"cpuLimit":"x"}}`, []string{"resource.cpuLimit"}},
		"a nested request":           {KeyInferenceService, `{"resource":{"cpuLimit":"1","cpuRequest":"2"}}`, []string{"resource.cpuRequest"}},
		"an image of two words":      {KeyRouter, `{"image":"a b"}`, []string{"image", "white space"}},
		"an image that is a number":  {KeyRouter, `{"image":1}`, []string{"image: is a number; write a string"}},
		"an object that is a string": {KeyExplainers, `{"art":"x"}`, []string{"art: is a string; write an object"}},
		"a list that is a string":    {KeyMultiNode, `{"customGPUResourceTypeList":"x"}`, []string{"customGPUResourceTypeList: is a string; write a list"}},
		"a list with a wrong item":   {KeyMultiNode, `{"customGPUResourceTypeList":["ok.io/gpu","not ok"]}`, []string{"customGPUResourceTypeList[1]"}},
		"a list with a number":       {KeyMultiNode, `{"customGPUResourceTypeList":[1]}`, []string{"customGPUResourceTypeList[0]: is a number"}},
		"no interval":                {KeyOpenTelemetryCollector, `{"scrapeInterval":"often"}`, []string{"scrapeInterval", "no duration"}},
		"no number":                  {KeyAutoscaler, `{"scaleUpStabilizationWindowSeconds":"soon"}`, []string{"scaleUpStabilizationWindowSeconds", "whole number"}},
		"a fraction":                 {KeyAutoscaler, `{"scaleUpStabilizationWindowSeconds":1.5}`, []string{"whole number"}},
		"a number too large":         {KeyAutoscaler, `{"scaleUpStabilizationWindowSeconds":99999999999}`, []string{"whole number"}},
		"a negative window":          {KeyAutoscaler, `{"scaleDownStabilizationWindowSeconds":"-1"}`, []string{"out of range", "0 to 3600"}},
		"a window too long":          {KeyAutoscaler, `{"scaleDownStabilizationWindowSeconds":"3601"}`, []string{"out of range"}},
		"an OCI mode of nobody":      {KeyStorageInitializer, `{"ociModelMode":"magic"}`, []string{"ociModelMode", "modelcar, native, fetch"}},
		"no memory for modelcars":    {KeyStorageInitializer, `{"memoryModelcar":"0"}`, []string{"memoryModelcar", "more than zero"}},
		"a negative user":            {KeyStorageInitializer, `{"uidModelcar":-1}`, []string{"uidModelcar", "out of range"}},
		"a relative mount":           {KeyStorageInitializer, `{"caBundleVolumeMountPath":"certs"}`, []string{"caBundleVolumeMountPath", "absolute"}},
		"a ConfigMap's name":         {KeyStorageInitializer, `{"caBundleConfigMapName":"Not_A_Name"}`, []string{"caBundleConfigMapName"}},
		"a truth in words":           {KeyStorageInitializer, `{"enableModelcar":"perhaps"}`, []string{"enableModelcar", "true or false"}},
		"a data key":                 {KeyCredentials, `{"s3":{"s3AccessKeyIDName":"a/b"}}`, []string{"s3.s3AccessKeyIDName"}},
		"an annotation":              {KeyCredentials, `{"storageSecretNameAnnotation":"a b"}`, []string{"storageSecretNameAnnotation"}},
		"no ingress gateway":         {KeyIngress, `{"urlScheme":"https"}`, []string{"ingressGateway: is missing"}},
		"no Gateway":                 {KeyIngress, `{"ingressGateway":"a/b","enableGatewayApi":true}`, []string{"kserveIngressGateway: is missing"}},
		"a Gateway without ns":       {KeyIngress, `{"ingressGateway":"a/b","enableGatewayApi":true,"kserveIngressGateway":"gw"}`, []string{"kserveIngressGateway", "namespace/name"}},
		"a Gateway of three parts":   {KeyIngress, `{"ingressGateway":"a/b","enableGatewayApi":true,"kserveIngressGateway":"a/b/c"}`, []string{"kserveIngressGateway"}},
		"a Gateway in capitals":      {KeyIngress, `{"ingressGateway":"a/b","enableGatewayApi":true,"kserveIngressGateway":"A/b"}`, []string{"kserveIngressGateway"}},
		"an open template":           {KeyIngress, `{"ingressGateway":"a/b","domainTemplate":"{{ .Name"}`, []string{"domainTemplate", "unclosed action"}},
		"a template of nothing":      {KeyIngress, `{"ingressGateway":"a/b","domainTemplate":"{{ .Title }}"}`, []string{"domainTemplate", "Title"}},
		"a template with a loop":     {KeyIngress, `{"ingressGateway":"a/b","domainTemplate":"{{ range 999999999999 }}{{ end }}"}`, []string{"domainTemplate", "loop"}},
		"a loop in a condition":      {KeyIngress, `{"ingressGateway":"a/b","domainTemplate":"{{ if .Name }}{{ else }}{{ range 9 }}{{ end }}{{ end }}"}`, []string{"loop"}},
		"a template in a template":   {KeyIngress, `{"ingressGateway":"a/b","domainTemplate":"{{ define \"a\" }}{{ end }}{{ template \"a\" }}"}`, []string{"loop"}},
		"a template without end":     {KeyIngress, `{"ingressGateway":"a/b","domainTemplate":"{{ printf \"%99999d\" 1 }}"}`, []string{"too long"}},
		"a path without a domain":    {KeyIngress, `{"ingressGateway":"a/b","pathTemplate":"/{{ .Name }}"}`, []string{"ingressDomain: is missing"}},
		"an open path template":      {KeyIngress, `{"ingressGateway":"a/b","ingressDomain":"a.b","pathTemplate":"{{ .Name"}`, []string{"pathTemplate"}},
		"a path that is a URL":       {KeyIngress, `{"ingressGateway":"a/b","ingressDomain":"a.b","pathTemplate":"http://x/{{ .Name }}"}`, []string{"pathTemplate", "no path"}},
		"a path with a host":         {KeyIngress, `{"ingressGateway":"a/b","ingressDomain":"a.b","pathTemplate":"//x/{{ .Name }}"}`, []string{"pathTemplate", "no path"}},
		"a relative path":            {KeyIngress, `{"ingressGateway":"a/b","ingressDomain":"a.b","pathTemplate":"{{ .Name }}"}`, []string{"pathTemplate", "slash"}},
		"a domain that is a URL":     {KeyIngress, `{"ingressGateway":"a/b","ingressDomain":"http://a.b"}`, []string{"ingressDomain", "no domain"}},
		"an allowed annotation":      {KeyIngress, `{"ingressGateway":"a/b","allowedAnnotations":["a.org/b","["]}`, []string{"allowedAnnotations[1]"}},
		"a further domain":           {KeyIngress, `{"ingressGateway":"a/b","additionalIngressDomains":["a.b","_"]}`, []string{"additionalIngressDomains[1]"}},
		"no scheme":                  {KeyIngress, `{"ingressGateway":"a/b","urlScheme":"http://"}`, []string{"urlScheme"}},
		"no header":                  {KeyIngress, `{"ingressGateway":"a/b","modelBasedRoutingHeaderName":"a b"}`, []string{"modelBasedRoutingHeaderName"}},
		"no routing mode":            {KeyIngress, `{"ingressGateway":"a/b","modelBasedRoutingMode":"maybe"}`, []string{"modelBasedRoutingMode", "enabled, forced, disabled"}},
		"no ingress class":           {KeyIngress, `{"ingressGateway":"a/b","ingressClassName":"A B"}`, []string{"ingressClassName"}},
		"no sink":                    {KeyLogger, `{"defaultUrl":"broker"}`, []string{"defaultUrl", "no URL"}},
		"no batch interval":          {KeyLogger, `{"batchInterval":"soon"}`, []string{"batchInterval"}},
		"a negative batch":           {KeyLogger, `{"batchSize":-1}`, []string{"batchSize", "out of range"}},
		"parameters of a logger":     {KeyLogger, `{"storage":{"parameters":{"a":1}}}`, []string{"storage.parameters.a: is a number"}},
		"parameters that are a list": {KeyLogger, `{"storage":{"parameters":[]}}`, []string{"storage.parameters: is a list"}},
		"an empty batch":             {KeyBatcher, `{"maxBatchSize":"0"}`, []string{"maxBatchSize", "out of range"}},
		"no latency":                 {KeyBatcher, `{"maxLatency":"-5"}`, []string{"maxLatency", "out of range"}},
		"a pull policy":              {KeyRouter, `{"imagePullPolicy":"Sometimes"}`, []string{"imagePullPolicy", "Always, IfNotPresent, Never"}},
		"a bundle of routers":        {KeyRouter, `{"caBundle":"A"}`, []string{"caBundle"}},
		"a pull secret":              {KeyRouter, `{"imagePullSecrets":["A"]}`, []string{"imagePullSecrets[0]"}},
		"no mode":                    {KeyDeploy, `{}`, []string{"defaultDeploymentMode: is missing"}},
		"a mode of nobody":           {KeyDeploy, `{"defaultDeploymentMode":"Magic"}`, []string{`"Magic" is no mode`, "Standard, Knative or ModelMesh"}},
		"a share over the whole":     {KeyDeploy, `{"defaultDeploymentMode":"Standard","deploymentRolloutStrategy":{"defaultRollout":{"maxSurge":"101%"}}}`, []string{"deploymentRolloutStrategy.defaultRollout.maxSurge"}},
		"a negative surge":           {KeyDeploy, `{"defaultDeploymentMode":"Standard","deploymentRolloutStrategy":{"defaultRollout":{"maxSurge":-1}}}`, []string{"maxSurge"}},
		"a rollout that stands still": {KeyDeploy, `{"defaultDeploymentMode":"Standard","deploymentRolloutStrategy":{"defaultRollout":{"maxSurge":0,"maxUnavailable":"0%"}}}`,
			[]string{"both zero"}},
		"no truth":               {KeyMetricsAggregator, `{"enableMetricAggregation":"yes"}`, []string{"enableMetricAggregation"}},
		"a namespace for jobs":   {KeyLocalModel, `{"jobNamespace":"a.b"}`, []string{"jobNamespace"}},
		"a group for jobs":       {KeyLocalModel, `{"fsGroup":99999999999}`, []string{"fsGroup", "out of range"}},
		"a life for jobs":        {KeyLocalModel, `{"jobTTLSecondsAfterFinished":-1}`, []string{"jobTTLSecondsAfterFinished"}},
		"a frequency of nothing": {KeyLocalModel, `{"reconcilationFrequencyInSecs":0}`, []string{"reconcilationFrequencyInSecs"}},
		"registry with a user":   {KeyStorageInitializer, `{"modelRegistryUrl":"https://me:hush@host"}`, []string{"modelRegistryUrl"}},
		"registry of files":      {KeyStorageInitializer, `{"modelRegistryUrl":"file:///x"}`, []string{"modelRegistryUrl"}},
		"security in words":      {KeySecurity, `{"autoMountServiceAccountToken":"sure"}`, []string{"autoMountServiceAccountToken"}},
		"service in words":       {KeyService, `{"serviceClusterIPNone":[]}`, []string{"serviceClusterIPNone"}},
		"an expiry annotation":   {KeyScheduler, `{"expirationAnnotations":["a b"]}`, []string{"expirationAnnotations[0]"}},
		"no Prometheus":          {KeyWVA, `{"prometheus":{"url":"nowhere"}}`, []string{"prometheus.url"}},
	} {
		t.Run(name, func(t *testing.T) {
			last := Default()
			last.Agent.Image = "last/agent"
			last.Deploy.DefaultDeploymentMode = ModeKnative
			data := map[string]string{test.key: test.raw, KeyExplainers: `{"art":{"image":"still/read"}}`}
			if test.key == KeyExplainers {
				data[KeyExplainers] = test.raw
			}
			got, problems := Parse(data, last)
			if len(problems) != 1 || problems[0].Key != test.key || problems[0].Warning {
				t.Fatalf("want one problem of %s, got %+v", test.key, problems)
			}
			for _, part := range append(test.says, "What held before") {
				if !strings.Contains(problems[0].Message, part) {
					t.Errorf("%q does not say %q", problems[0].Message, part)
				}
			}
			want := Default()
			if test.key != KeyExplainers {
				want.Explainers.Art.Image = "still/read"
			}
			switch test.key {
			case KeyAgent:
				want.Agent = last.Agent
			case KeyDeploy:
				want.Deploy = last.Deploy
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
			fallback, problems := Parse(data, nil)
			if diff := cmp.Diff(Default().Deploy, fallback.Deploy); diff != "" {
				t.Errorf("without a last config (-want +got):\n%s", diff)
			}
			if !strings.Contains(problems[0].Message, "defaults stand in") {
				t.Errorf("%q does not say that the defaults stand in", problems[0].Message)
			}
			if d := fallback.FirstUnusable(test.key); d == nil || *d != problems[0] || got.FirstUnusable(test.key) != nil {
				t.Errorf("doubts are %+v without a last config, and %+v with one", fallback.Unusable, got.Unusable)
			}
		})
	}
}

func TestParseWarnsOfUnknownFields(t *testing.T) {
	got, problems := Parse(map[string]string{
		KeyStorageInitializer: `{"image":"i:1","enableDirectPvcVolumeMount":true,"a":1,"b":1,"c":1,"d":1,"e":1}`,
		KeyCredentials:        `{"s3":{"s3Regoin":"eu"}}`,
	}, nil)
	want := Default()
	want.StorageInitializer.Image = "i:1"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	if len(problems) != 2 || !problems[0].Warning || !problems[1].Warning {
		t.Fatalf("want two warnings, got %+v", problems)
	}
	for i, part := range []string{"a, b, c, d, e and 1 more", "s3.s3Regoin"} {
		if !strings.Contains(problems[i].Message, part) {
			t.Errorf("%q does not say %q", problems[i].Message, part)
		}
	}
}

func TestMessagesShowNoPasswordAndAreBounded(t *testing.T) {
	_, problems := Parse(map[string]string{
		KeyLogger: `{"defaultUrl":"user:hunter2@broker"}`,
		KeyAgent:  `{"cpuRequest":"` + strings.Repeat("é", 5000) + `","` + strings.Repeat("x", 5000) + `":1}`,
	}, nil)
	if len(problems) != 3 {
		t.Fatalf("want three problems, got %+v", problems)
	}
	for _, p := range problems {
		if strings.Contains(p.Message, "hunter2") {
			t.Errorf("a password is shown: %s", p.Message)
		}
		if len(p.Message) > 1024 {
			t.Errorf("a message of %d bytes fits no event", len(p.Message))
		}
	}
}

// What a KServe installation brings along is taken as it is.
func TestShippedConfigMap(t *testing.T) {
	raw, err := os.ReadFile("testdata/shipped.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var data map[string]string
	if err := yaml.UnmarshalStrict(raw, &data); err != nil {
		t.Fatal(err)
	}
	got, problems := Parse(data, nil)
	if len(problems) != 0 {
		t.Errorf("problems: %+v", problems)
	}
	want := Default()
	want.InferenceService.Resource = resources("1", "1", "2Gi", "2Gi")
	want.StorageInitializer.EnableModelcar = true
	want.StorageInitializer.UIDModelcar = ptr.To[int64](1010)
	want.Credentials.S3.S3AccessKeyIDName, want.Credentials.S3.S3SecretAccessKeyName = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
	want.Ingress.IngressClassName = ptr.To("istio")
	want.Deploy.DefaultDeploymentMode = ModeKnative
	want.LocalModel.FSGroup = ptr.To[int64](1000)
	want.Security.AutoMountServiceAccountToken = true
	want.Router.Headers.Propagate = []string{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
}

func TestKeysAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range documented() {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/configuration.md does not explain %s", name)
		}
	}
}
