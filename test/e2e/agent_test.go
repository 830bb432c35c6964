// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

const besideServer = "e2e-agent"

// agentWorks: with nothing but images of our own, requests are batched and seen at a receiver, and a server that holds many
// models gets and loses one.
func (c cluster) agentWorks() {
	c.models(besideServer)
	c.mustKubectl("apply", "-n", besideServer, "-f", c.manifest("agent.yaml", "${ECHO}", c.image("modelplane-echo")))
	c.Cleanup(func() {
		c.undo("delete", "namespace", besideServer, "--timeout=5m")
		c.undo("delete", "persistentvolume", "models-"+besideServer, "--timeout=5m")
	})
	c.mustKubectl("rollout", "status", "deployment/receiver", "-n", besideServer, "--timeout=5m")
	c.upToDateIn(besideServer, "audited")
	c.becomesReady(besideServer, "many")
	for _, name := range []string{"audited", "many"} {
		agent := c.mustKubectl("get", "pods", "-n", besideServer, "-l", "serving.kserve.io/inferenceservice="+name,
			"-o", `jsonpath={.items[0].spec.containers[?(@.name=="agent")].image} {.items[0].spec.containers[?(@.name=="agent")].command}`)
		if want := c.podImage() + ` ["/modelplane-pod","agent"]`; agent != want {
			c.Errorf("the agent of %s is %s, want %s", name, agent, want)
		}
	}
	c.irisAnswers(besideServer, "audited")
	c.batchesAndLogs()
	c.bringsModels()
}

// batchesAndLogs asks eight times at once.
func (c cluster) batchesAndLogs() {
	at := c.addressIn(besideServer, "audited-predictor") + "/v1/models/audited:predict"
	batches, failures := map[string]int{}, make(chan error, 8)
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			out, err := answer(c.Context(), http.MethodPost, at, strings.NewReader(`{"instances":[[5.1,3.5,1.4,0.2]]}`))
			var got struct {
				BatchID     string
				Predictions []int
			}
			if err == nil {
				err = json.Unmarshal([]byte(out), &got)
			}
			if err == nil && len(got.Predictions) != 1 {
				err = fmt.Errorf("the answer is %s", out)
			}
			if err != nil {
				failures <- err
			}
			mu.Lock()
			defer mu.Unlock()
			batches[got.BatchID]++
		})
	}
	all.Wait()
	close(failures)
	for err := range failures {
		c.Error(err)
	}
	if most := slices.Max(slices.Collect(maps.Values(batches))); most < 2 || batches[""] > 0 {
		c.Errorf("eight requests were in batches %v", batches)
	}
	c.eventually("events of eight requests and their answers", func() error {
		out, err := c.get(c.addressIn(besideServer, "receiver") + "/events")
		if err != nil {
			return err
		}
		var events []struct{ Type, ID, Service, Status, Body string }
		if err := json.Unmarshal([]byte(out), &events); err != nil {
			return err
		}
		seen := map[string]int{}
		for _, e := range events {
			if e.Service != "audited" || !strings.Contains(e.Body, "[[5.1,3.5,1.4,0.2]]") && !strings.Contains(e.Body, `"predictions":[0]`) {
				continue
			}
			seen[strings.TrimPrefix(e.Type, "org.kubeflow.serving.inference.")+e.Status]++
		}
		if seen["request"] < 8 || seen["response200"] < 8 {
			return fmt.Errorf("of %d events there are %v", len(events), seen)
		}
		return nil
	})
}

// bringsModels waits for a model in a server that holds many, and for its end.
func (c cluster) bringsModels() {
	models := func(good func(map[string]string) bool) func() error {
		return func() error {
			out, err := c.get(c.addressIn(besideServer, "many-predictor") + "/models")
			if err != nil {
				return err
			}
			var got map[string]string
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				return err
			}
			if !good(got) {
				return errors.New("the server has " + out)
			}
			return nil
		}
	}
	c.listed(true)
	c.eventually("the model to be loaded", models(func(got map[string]string) bool { return strings.HasPrefix(got["setosa"], "receiver-") }))
	c.mustKubectl("delete", "trainedmodel", "setosa", "-n", besideServer, "--timeout=5m")
	c.listed(false)
	c.eventually("the model to be unloaded", models(func(got map[string]string) bool { return len(got) == 0 }))
}

// listed waits until the model is in the list of its server, or is not. The kubelet looks at lists once a minute, or when
// something about a pod changes.
func (c cluster) listed(want bool) {
	c.Helper()
	c.eventually("the list of models", func() error {
		list := c.mustKubectl("get", "configmap", "modelconfig-many-0", "-n", besideServer, "-o", `jsonpath={.data.models\.json}`)
		if strings.Contains(list, "setosa") != want {
			return errors.New("it is " + list)
		}
		return nil
	})
	c.mustKubectl("annotate", "pods", "-n", besideServer, "-l", "serving.kserve.io/inferenceservice=many", fmt.Sprintf("listed=%v", want), "--overwrite")
}
