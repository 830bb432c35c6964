// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/fetch/fetchtest/gateway"
	"github.com/modelplane/modelplane/internal/testkit/postgres"
)

const artifacts = "artifacts"

// mlflow is a server for everybody on the cluster, with its database and its artifacts on this machine.
type mlflow struct {
	cluster
	image   string
	buckets *gateway.Server
}

// mlflowKeepsRuns uses the real MLflow, from its first start on an empty database to its end: what a person logged is
// there after the server was killed, old traces are there after they were archived, and what a person deleted is gone
// after garbage collection. Database and artifacts are reached over TLS alone, with a certificate that only this test
// vouches for.
func (c cluster) mlflowKeepsRuns() {
	m := mlflow{cluster: c, image: c.mlflowImage()}
	m.start()
	out := m.does("log", "log, trace")
	run := regexp.MustCompile(`run=([0-9a-f]{32})`).FindStringSubmatch(out)
	trace := regexp.MustCompile(`trace=(tr-[0-9a-f]{32})`).FindStringSubmatch(out)
	if run == nil || trace == nil {
		c.Fatalf("no run or no trace in what the client says:\n%s", out)
	}
	m.isKilled()
	m.runs("trace-archival")
	if len(m.left(trace[1])) == 0 {
		c.Errorf("%s is not in the archive", trace[1])
	}
	m.does("read", fmt.Sprintf("traced %[2]s, read %[1]s, delete %[1]s", run[1], trace[1]))
	m.runs("gc")
	m.does("gone", "gone "+run[1])
	if left := m.left(run[1]); len(left) > 0 {
		c.Errorf("garbage collection left %v", left)
	}
	m.goes()
}

// mlflowImage is made by `make e2e` from packages of Python, if they can be had.
func (c cluster) mlflowImage() string {
	c.Helper()
	_, err := os.Stat(filepath.Join(root, c.images, "modelplane-mlflow.reference"))
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") == "" {
		c.Skip("there is no image of MLflow: `make e2e` says why")
	}
	return c.image("modelplane-mlflow")
}

func (m *mlflow) start() {
	m.Helper()
	host := m.mustKubectl("get", "nodes", "-o", `jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}`)
	pair, err := certs.NewPair(time.Now(), "e2e", []string{host}, nil)
	if err != nil {
		m.Fatal(err)
	}
	m.mustKubectl("create", "configmap", "e2e-authority", "-n", managerNamespace, "--from-literal=ca.crt="+string(pair.Roots))
	database := postgres.StartTLS(m, host, pair.Certificate, pair.Key)
	database.Database(m, "mlflow")
	m.buckets = gateway.StartTLS(m, host, gateway.Identity(pair))
	m.buckets.Put(m, artifacts, nil)
	m.mustKubectl("apply", "-f", m.manifest("mlflow.yaml", "${IMAGE}", m.image, "${DATABASE}", database.URI("mlflow"),
		"${BUCKET}", artifacts, "${BUCKETS}", m.buckets.URL, "${REGION}", gateway.Region, "${ACCESS}", gateway.AccessKey, "${SECRET}", gateway.SecretKey))
	m.isAvailable()
	if version := m.mustKubectl("get", "mlflow", "mlflow", "-o", "jsonpath={.status.version}"); version == "" {
		m.Error("the status does not tell the version of the database")
	}
	m.mustKubectl("create", "configmap", "client", "-n", "e2e-science", "--from-file=test/e2e/testdata/mlflow_client.py")
	trust, err := base64.StdEncoding.DecodeString(m.mustKubectl("get", "secret", "mlflow-tls", "-n", managerNamespace, "-o", `jsonpath={.data.ca\.crt}`))
	if err != nil {
		m.Fatal(err)
	}
	m.mustKubectl("create", "configmap", "trust", "-n", "e2e-science", "--from-literal=ca.crt="+string(trust))
}

func (m *mlflow) isAvailable() {
	m.Helper()
	out, err := m.kubectl("wait", "--for=condition=Available", "--timeout=5m", "mlflow/mlflow")
	if err != nil {
		says, _ := m.kubectl("get", "mlflow", "mlflow", "-o", "jsonpath={.status.conditions}")
		pods, _ := m.kubectl("get", "pods", "-n", managerNamespace)
		m.Fatalf("MLflow is not available: %v\n%s\n%s\n%s", err, out, says, pods)
	}
}

// does lets a person's program run in a pod, and returns what it said.
func (m *mlflow) does(name, what string) string {
	m.Helper()
	url := m.mustKubectl("get", "mlflow", "mlflow", "-o", "jsonpath={.status.address.url}")
	m.mustKubectl("apply", "-f", m.manifest("mlflow-client.yaml", "${NAME}", name, "${IMAGE}", m.image, "${DOES}", what, "${URL}", url))
	m.eventually("the client's end", func() error {
		phase, err := m.kubectl("get", "pod", name, "-n", "e2e-science", "-o", "jsonpath={.status.phase}")
		if err == nil && phase != "Succeeded" && phase != "Failed" {
			err = errors.New(phase)
		}
		return err
	})
	out := m.mustKubectl("logs", name, "-n", "e2e-science")
	if !slices.Contains(strings.Split(out, "\n"), "done") {
		server, _ := m.kubectl("logs", "deployment/mlflow", "-n", managerNamespace, "--tail=30")
		m.Fatalf("%s failed:\n%s\nthe server says:\n%s", what, out, server)
	}
	return out
}

// isKilled removes the server's pod without notice.
func (m *mlflow) isKilled() {
	m.Helper()
	before := m.mustKubectl("get", "pods", "-n", managerNamespace, "-l", "app=mlflow", "-o", "name")
	m.mustKubectl("delete", "pods", "-n", managerNamespace, "-l", "app=mlflow", "--force", "--grace-period=0")
	m.eventually("another pod", func() error {
		now, err := m.kubectl("get", "pods", "-n", managerNamespace, "-l", "app=mlflow", "-o", "name")
		if err == nil && (now == "" || now == before) {
			err = fmt.Errorf("the pods are %q", now)
		}
		return err
	})
	m.mustKubectl("rollout", "status", "deployment/mlflow", "-n", managerNamespace, "--timeout=5m")
	m.isAvailable()
}

// runs does not wait for the schedule of a CronJob.
func (m *mlflow) runs(name string) {
	m.Helper()
	job := name + "-now"
	m.mustKubectl("create", "job", job, "-n", managerNamespace, "--from=cronjob/mlflow-"+name)
	m.eventually("the end of "+job, func() error {
		ended, err := m.kubectl("get", "job", job, "-n", managerNamespace, "-o", "jsonpath={.status.conditions[*].type}")
		if err == nil && !strings.Contains(ended, "Complete") && !strings.Contains(ended, "Failed") {
			err = errors.New(ended)
		}
		return err
	})
	said, _ := m.kubectl("logs", "job/"+job, "-n", managerNamespace)
	if status := m.mustKubectl("get", "job", job, "-n", managerNamespace, "-o", "jsonpath={.status.conditions}"); !strings.Contains(status, "Complete") {
		m.Fatalf("%s: %s\n%s", job, status, said)
	}
	args := m.mustKubectl("get", "pods", "-n", managerNamespace, "-l", "job-name="+job, "-o", "jsonpath={.items[*].spec.containers[*].args}")
	if strings.Contains(args, "$(") {
		m.Errorf("%s gets variables as arguments, which everybody on the node can read: %s", job, args)
	}
}

// left finds the files with a name in them among the artifacts.
func (m *mlflow) left(name string) (found []string) {
	m.Helper()
	err := filepath.WalkDir(filepath.Join(m.buckets.Dir, artifacts), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(path, name) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		m.Error(err)
	}
	return found
}

// goes leaves nothing but what belongs to people.
func (m *mlflow) goes() {
	m.Helper()
	m.mustKubectl("delete", "mlflow", "mlflow", "--timeout=5m")
	m.eventually("everything gone", func() error {
		left, err := m.kubectl("get", "deployments,pods,services,cronjobs,networkpolicies,serviceaccounts", "-n", managerNamespace, "-l", "app in (mlflow,mlflow-gc,mlflow-trace-archival)", "-o", "name")
		if err == nil && left != "" {
			err = errors.New(left)
		}
		return err
	})
	m.mustKubectl("delete", "namespace", "e2e-science", "--wait=false")
	m.mustKubectl("delete", "configmap", "e2e-authority", "-n", managerNamespace)
	m.mustKubectl("delete", "secrets", "mlflow-db-credentials", "aws-credentials", "-n", managerNamespace)
}
