// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const registryNamespace = "e2e-registry"

// registryKeepsModels uses the client that people have, on a registry whose database is made for it: a model that it
// registers is served by its name there, the registry knows the service, and nothing is lost when the database is killed,
// when its tables are dropped and restored, or when the registry goes and comes again. Meanwhile another registry on the
// same database gets into trouble, which takes a while to tell.
func (c cluster) registryKeepsModels() {
	python := c.registryPython()
	c.mustKubectl("apply", "-f", c.manifest("registry.yaml", "${POSTGRES}", c.image("modelplane-postgres")))
	c.Cleanup(func() { c.undo("delete", "namespace", registryNamespace, "--wait=false") })
	c.registryIsAvailable()
	c.mustKubectl("apply", "-f", c.manifest("registry-second.yaml"))
	host := c.mustKubectl("get", "nodes", "-o", `jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}`)
	web := c.serve(host)
	model, err := os.ReadFile(filepath.Join(root, "examples/onnx/iris/model.onnx"))
	if err != nil {
		c.Fatal(err)
	}
	web.put("/iris/model.onnx", model)
	uri := web.URL + "/iris/model.onnx"
	client := func(does string) string {
		c.Helper()
		out := c.must(python, "test/e2e/testdata/registry.py", c.addressIn(registryNamespace, "models")+":8080", does, uri)
		if !strings.HasSuffix(strings.TrimSpace(out), "done") {
			c.Fatalf("the client did not come to its end:\n%s", out)
		}
		return out
	}
	out := client("register")
	ids := regexp.MustCompile(`(?s)model=(\d+).*version=(\d+)`).FindStringSubmatch(out)
	if ids == nil {
		c.Fatalf("there are no ids in what the client says:\n%s", out)
	}
	c.mustKubectl("apply", "-f", c.manifest("registry-service.yaml", "${MODEL}", ids[1], "${VERSION}", ids[2]))
	c.secondIsAvailable()
	c.changeSecond(`{"spec":{"postgres":{"passwordSecret":{"name":"wrong","key":"password"}}}}`)
	c.becomesReady(registryNamespace, "iris")
	c.irisAnswers(registryNamespace, "iris")
	c.eventually("the service in the registry", c.serviceIsRegistered)
	c.secondTells(`password authentication failed.* Check the credentials`)
	c.changeSecond(`{"spec":{"postgres":{"passwordSecret":{"name":"models-postgres-credentials","key":"password"}}}}`)
	c.secondIsWell()

	c.changeSecond(secondDatabase("nowhere")) // where nothing answers
	c.databaseIsKilled()
	client("read")
	c.backupIsRestored(python)
	client("read")
	c.secondTells(`(?i)nowhere.*check (the|its) address.*Its database is PostgreSQL nowhere:5432`)
	c.changeSecond(secondDatabase("models-postgres"))
	c.secondIsWell()
	c.mustKubectl("delete", "modelregistry", "second", "-n", registryNamespace, "--timeout=5m")

	claim := c.mustKubectl("get", "pvc", "models-postgres-storage", "-n", registryNamespace, "-o", "jsonpath={.metadata.uid}")
	c.mustKubectl("delete", "modelregistry", "models", "-n", registryNamespace, "--timeout=5m")
	c.eventually("the end of its pods", func() error {
		left, err := c.kubectl("get", "pods", "-n", registryNamespace, "-l", "app=models", "-o", "name")
		if err == nil && left != "" {
			err = errors.New(left)
		}
		return err
	})
	if now := c.mustKubectl("get", "pvc", "models-postgres-storage", "-n", registryNamespace, "-o", "jsonpath={.metadata.uid}"); now != claim {
		c.Errorf("the claim is %s; it was %s", now, claim)
	}
	c.mustKubectl("apply", "-f", c.manifest("registry.yaml", "${POSTGRES}", c.image("modelplane-postgres")))
	c.registryIsAvailable()
	client("read")
	c.mustKubectl("delete", "inferenceservice", "iris", "-n", registryNamespace, "--timeout=5m")
	c.eventually("the service to be undeployed in the registry", func() error {
		if out, err := c.get(c.registered("inference_services")); err != nil || !strings.Contains(out, `"desiredState":"UNDEPLOYED"`) {
			return fmt.Errorf("it says %s (%w)", out, errors.Join(err))
		}
		return nil
	})
}

// registryPython is made by `make e2e` from packages of Python, if they can be had.
func (c cluster) registryPython() string {
	c.Helper()
	python, err := os.ReadFile(filepath.Join(root, c.images, "registry-python"))
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") == "" {
		c.Skip("there is no client of model registries: `make e2e` says why")
	}
	if err != nil {
		c.Fatal(err)
	}
	return strings.TrimSpace(string(python))
}

func (c cluster) registryIsAvailable() {
	c.Helper()
	out, err := c.kubectl("wait", "--for=condition=Available", "--timeout=5m", "-n", registryNamespace, "modelregistry/models")
	if err != nil {
		says, _ := c.kubectl("get", "modelregistry", "models", "-n", registryNamespace, "-o", "jsonpath={.status.conditions}")
		pods, _ := c.kubectl("get", "pods", "-n", registryNamespace)
		logs, _ := c.kubectl("logs", "-n", registryNamespace, "-l", "app=models", "--tail=20", "--prefix")
		c.Fatalf("the registry is not available: %v\n%s\n%s\n%s\n%s", err, out, says, pods, logs)
	}
	c.registryAnswers()
}

// databaseIsKilled takes the pod of the database away without notice, and waits for the next one.
func (c cluster) databaseIsKilled() {
	c.Helper()
	pods := []string{"get", "pods", "-n", registryNamespace, "-l", "app.kubernetes.io/name=models-postgres", "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{end}`}
	before, _, _ := strings.Cut(c.mustKubectl(pods...), " ")
	c.mustKubectl("delete", "pod", before, "-n", registryNamespace, "--force", "--grace-period=0")
	c.eventually("another database", func() error {
		now, err := c.kubectl(pods...)
		if err == nil && (strings.Contains(now, before) || !strings.HasSuffix(now, " True")) {
			err = fmt.Errorf("the pods are %q", now)
		}
		return err
	})
	c.registryAnswers()
}

// backupIsRestored does what the page says of backup and restore, and loses all tables in between.
func (c cluster) backupIsRestored(python string) {
	c.Helper()
	p := c.readPage("docs/model-registry.md", "### Backup and restore")
	if len(p.commands) < 2 || !strings.Contains(p.commands[0], "pg_dump") {
		c.Fatalf("the page begins with %q", p.commands)
	}
	lose := `kubectl -n models exec deploy/team-postgres -- bash -c ` +
		`'PGPASSWORD=$POSTGRESQL_PASSWORD psql -v ON_ERROR_STOP=1 -h 127.0.0.1 -U $POSTGRESQL_USER -c "DROP OWNED BY $POSTGRESQL_USER" $POSTGRESQL_DATABASE'`
	p.commands = slices.Insert(p.commands, 1, lose)
	c.do(p, python, "-n models ", "-n "+registryNamespace+" ", "deploy/team", "deploy/models")
	c.mustKubectl("rollout", "status", "deployment/models", "-n", registryNamespace, "--timeout=5m")
	c.registryAnswers()
}

// changeSecond updates the second registry into trouble or out of it.
func (c cluster) changeSecond(patch string) {
	c.Helper()
	c.mustKubectl("patch", "modelregistry", "second", "-n", registryNamespace, "--type=merge", "-p", patch)
}

// secondDatabase says that a switch to the database of another host is meant.
func secondDatabase(host string) string {
	return fmt.Sprintf(`{"metadata":{"annotations":{"modelplane.dev/switch-database":"postgres/%[1]s:5432/model_registry"}},"spec":{"postgres":{"host":%[1]q}}}`, host)
}

func (c cluster) secondIsAvailable() {
	c.Helper()
	c.mustKubectl("wait", "--for=condition=Available", "--timeout=5m", "-n", registryNamespace, "modelregistry/second")
}

// secondTells waits until the second registry says what is wrong, and asks the pod of before, which goes on answering.
func (c cluster) secondTells(words string) {
	c.Helper()
	c.registryTells(registryNamespace, "second", words)
	c.secondIsAvailable()
	c.eventually("an answer of the pod of before", func() error {
		_, err := c.get(c.addressIn(registryNamespace, "second") + ":8080/api/model_registry/v1/registered_models")
		return err
	})
}

// registryTells waits until a registry says what somebody must do something about.
func (c cluster) registryTells(namespace, name, words string) {
	c.Helper()
	c.eventually("words about "+words, func() error {
		says, err := c.kubectl("get", "modelregistry", name, "-n", namespace, "-o", `jsonpath={.status.conditions[?(@.type=="Degraded")].message}`)
		if err == nil && !regexp.MustCompile(words).MatchString(says) {
			err = fmt.Errorf("it says %q", says)
		}
		return err
	})
}

// secondIsWell waits until there is nothing left to tell.
func (c cluster) secondIsWell() {
	c.Helper()
	c.eventually("the end of the trouble", func() error {
		says, err := c.kubectl("get", "modelregistry", "second", "-n", registryNamespace, "-o",
			`jsonpath={.status.conditions[?(@.type=="Degraded")].status}{.status.conditions[?(@.type=="Progressing")].status}`)
		if err == nil && says != "False" && says != "FalseFalse" {
			err = fmt.Errorf("Degraded and Progressing are %q", says)
		}
		return err
	})
	c.secondIsAvailable()
}

func (c cluster) registered(what string) string {
	c.Helper()
	return c.addressIn(registryNamespace, "models") + ":8080/api/model_registry/v1alpha3/" + what
}

func (c cluster) registryAnswers() {
	c.Helper()
	c.eventually("an answer of the registry", func() error {
		_, err := c.get(c.registered("registered_models"))
		return err
	})
}

// serviceIsRegistered finds the InferenceService under its namespace, with its address.
func (c cluster) serviceIsRegistered() error {
	out, err := c.get(c.registered("inference_services"))
	if err != nil {
		return err
	}
	var list struct {
		Items []struct {
			Name, DesiredState string
			CustomProperties   map[string]any
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return err
	}
	if len(list.Items) != 1 || !strings.HasPrefix(list.Items[0].Name, "iris/") || list.Items[0].DesiredState != "DEPLOYED" || list.Items[0].CustomProperties["url"] == nil {
		return fmt.Errorf("it has %s", out)
	}
	return nil
}
