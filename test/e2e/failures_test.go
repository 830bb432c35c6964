// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/modelplane/modelplane/internal/fetch/fetchtest/gateway"
)

const troubled = "e2e-failures"

// failure is a service that cannot become ready, and what a person who looks at it has to read.
type failure struct {
	name, reason string
	words        []string
	// mend removes the cause and touches nothing else. Some causes stay.
	mend func(cluster, storages)
}

var failures = []failure{
	{name: "wrong-key", reason: "InitContainerFailed", words: []string{"s3://models/iriss", "has no files", "check the path"},
		mend: func(c cluster, _ storages) {
			c.patch("inferenceservice", "wrong-key", `{"spec":{"predictor":{"model":{"storageUri":"s3://models/iris"}}}}`)
		}},
	{name: "wrong-path", reason: "InitContainerFailed", words: []string{"/later/iris.tar.gz", "does not exist", "check the address"},
		mend: func(_ cluster, s storages) { s.web.put("/later/iris.tar.gz", s.archive) }},
	{name: "wrong-credentials", reason: "InitContainerFailed",
		words: []string{"s3://models/iris", "access is denied", "SignatureDoesNotMatch", "access key of the secret", "check them"},
		mend: func(c cluster, _ storages) {
			c.patch("secret", "wrong", `{"stringData":{"AWS_SECRET_ACCESS_KEY":"`+gateway.SecretKey+`"}}`)
		}},
	{name: "corrupt", reason: "InitContainerFailed", words: []string{"/corrupt.tar.gz", "cut off", "upload it again"},
		mend: func(_ cluster, s storages) { s.web.put("/corrupt.tar.gz", s.archive) }},
	{name: "too-large", reason: "InitContainerFailed", words: []string{"/large.onnx", "limit of 1 MiB", "smaller model", "raise the limit"}},
	{name: "no-model", reason: "CrashLoopBackOff", words: []string{"kserve-container", "words.onnx", "kubectl logs"}},
	{name: "no-image", reason: "ImagePullBackOff", words: []string{"absent:v1", "the registry does not have it", "Correct its name or tag"}},
	{name: "crashing", reason: "CrashLoopBackOff", words: []string{"exit code 1", "the weights do not fit the graph", "kubectl logs"}},
	{name: "greedy", reason: "OOMKilled", words: []string{"more memory than its limit of 32Mi", "Raise its memory limit"}},
}

func (c cluster) patch(kind, name, change string) {
	c.Helper()
	c.mustKubectl("patch", kind, name, "-n", troubled, "--type=merge", "-p", change)
}

// failuresAreExplained has services that fail, each in a way of its own: all say the first cause in words, once. Those
// whose cause is removed become ready by themselves.
func (c cluster) failuresAreExplained() {
	s := c.openStorages()
	s.web.put("/corrupt.tar.gz", s.archive[:len(s.archive)/2])
	s.web.put("/large.onnx", make([]byte, 4<<20))
	s.web.put("/words.onnx", []byte("These are words and no model."))
	registry := c.serve("127.0.0.1") // without images; for localhost nobody expects a certificate
	manager := c.mustKubectl("get", "deployment", "modelplane", "-n", managerNamespace, "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	s.apply(c, "failures.yaml", "${ECHO}", c.image("modelplane-echo"), "${MODELPLANE}", manager,
		"${REGISTRY}", strings.Replace(registry.Listener.Addr().String(), "127.0.0.1", "localhost", 1))
	c.eventually("the causes in the conditions", func() error { return c.explained(failures) })
	var stay []failure
	for _, f := range failures {
		if f.mend == nil {
			stay = append(stay, f)
			continue
		}
		f.mend(c, s)
	}
	for _, f := range failures {
		if f.mend != nil {
			c.becomesReady(troubled, f.name)
			c.irisAnswers(troubled, f.name)
		}
	}
	c.eventually("some restarts", func() error { return c.restarted("crashing", 3) })
	if err := c.explained(stay); err != nil {
		c.Errorf("after a while: %v", err)
	}
	c.eachIsToldOnce()
	c.mustKubectl("delete", "namespace", troubled, "--timeout=5m")
	c.mustKubectl("delete", "clusterstoragecontainer", "e2e-small-models")
}

// explained looks for the causes in what the services say of themselves.
func (c cluster) explained(these []failure) error {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				Conditions  []struct{ Type, Status, Reason, Message string }
				ModelStatus struct{ LastFailureInfo struct{ Message string } }
			}
		}
	}
	if err := c.list(&list, "inferenceservices"); err != nil {
		return err
	}
	said := map[string]map[string]string{}
	for _, item := range list.Items {
		all := map[string]string{"lastFailureInfo": item.Status.ModelStatus.LastFailureInfo.Message}
		for _, condition := range item.Status.Conditions {
			all[condition.Type] = fmt.Sprintf("%s %s: %s", condition.Status, condition.Reason, condition.Message)
		}
		said[item.Metadata.Name] = all
	}
	var missing []error
	for _, f := range these {
		for _, where := range []string{"Ready", "PredictorReady", "lastFailureInfo"} {
			text := said[f.name][where]
			if where != "lastFailureInfo" && !strings.HasPrefix(text, "False "+f.reason+": ") {
				missing = append(missing, fmt.Errorf("%s: %s is not False because of %s: %q", f.name, where, f.reason, text))
			}
			if err := contains(text, f.words); err != nil {
				missing = append(missing, fmt.Errorf("%s: %s: %w", f.name, where, err))
			}
		}
	}
	return errors.Join(missing...)
}

func contains(text string, words []string) error {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return fmt.Errorf("no word of %q in %q", word, text)
		}
	}
	return nil
}

// list reads all objects of a kind among the services that fail.
func (c cluster) list(into any, kind string) error {
	out, err := c.kubectl("get", kind, "-n", troubled, "-o", "json")
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return json.NewDecoder(bytes.NewBufferString(out)).Decode(into)
}

// restarted wants a server to have been started again so many times.
func (c cluster) restarted(name string, times int) error {
	out, err := c.kubectl("get", "pods", "-n", troubled, "-l", "serving.kserve.io/inferenceservice="+name,
		"-o", "jsonpath={.items[0].status.containerStatuses[0].restartCount}")
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if n, err := strconv.Atoi(out); err != nil || n < times {
		return fmt.Errorf("%q restarts, want %d", out, times)
	}
	return nil
}

// eachIsToldOnce counts what the events of the services say, however often something was tried again.
func (c cluster) eachIsToldOnce() {
	c.Helper()
	var list struct {
		Items []struct {
			InvolvedObject        struct{ Kind, Name string }
			Type, Reason, Message string
			Count                 int
			Series                struct{ Count int }
		}
	}
	if err := c.list(&list, "events"); err != nil {
		c.Fatal(err)
	}
	warnings := map[string][]string{}
	for _, e := range list.Items {
		if e.InvolvedObject.Kind == "InferenceService" && e.Type == "Warning" {
			for range max(1, e.Count, e.Series.Count) {
				warnings[e.InvolvedObject.Name] = append(warnings[e.InvolvedObject.Name], e.Reason+": "+e.Message)
			}
		}
	}
	for _, f := range failures {
		told := warnings[f.name]
		if len(told) != 1 {
			c.Errorf("%s is told by %d events, want 1:\n%s", f.name, len(told), strings.Join(told, "\n"))
			continue
		}
		if err := contains(told[0], append([]string{f.reason}, f.words...)); err != nil {
			c.Errorf("event of %s: %v", f.name, err)
		}
	}
}
