// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	serverImage   = "modelplane-onnx"
	meshRuntime   = "modelplane-onnx-mesh" // has the same image
	exampleModels = "examples/onnx"
	exampleInput  = exampleModels + "/iris/request-v1.json"
	// quickstart holds manifests that run with what is brought here; the first of them is applied.
	quickstart       = "examples/quickstart"
	transformerImage = "modelplane-transformer"
	transformerTag   = "example" // as the manifest has it
)

// loadServer makes the image of the model server that needs nothing from outside. Its files are collected by its own
// module, because they take a C compiler.
func (u *up) loadServer(ctx context.Context) (string, error) {
	if err := u.ensureCompiler(ctx); err != nil {
		return "", err
	}
	tree, err := filepath.Abs(filepath.Join(u.archive, serverImage))
	if err != nil {
		return "", err
	}
	if err := os.RemoveAll(tree); err != nil {
		return "", err
	}
	if _, err := output(ctx, "go", "run", "-C", "runtimes/onnx", "./cmd/onnxfiles", "tree", tree); err != nil {
		return "", err
	}
	return u.load(ctx, serverImage, "--tree", tree)
}

// ensureCompiler installs one where that may be done without a question.
func (u *up) ensureCompiler(ctx context.Context) error {
	if _, err := exec.LookPath("gcc"); err == nil || os.Getenv("CC") != "" {
		return nil
	}
	const install = "apt-get install --no-install-recommends gcc libc6-dev"
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		return errors.New("the model server needs a C compiler to be built; install one, on Debian with\n  " + install)
	}
	start := time.Now()
	for _, args := range []string{"update -q", "install -q -y --no-install-recommends gcc libc6-dev"} {
		cmd := exec.CommandContext(ctx, apt, append([]string{"-o", "DPkg::Lock::Timeout=300"}, strings.Fields(args)...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", install, err, bytes.TrimSpace(out))
		}
	}
	u.say("packages", "gcc and libc6-dev installed in %s", since(start))
	return nil
}

// loadTransformer makes the image that an example of the quick start names.
func (u *up) loadTransformer(ctx context.Context) error {
	start := time.Now()
	_, err := output(ctx, "go", "run", "./hack/image", "--package", "./"+quickstart+"/transformer", "--name", transformerImage,
		"--version", transformerTag, "--commit", "unknown", "--out", u.archive)
	if err != nil {
		return err
	}
	u.say("image", "%s:%s built in %s", transformerImage, transformerTag, since(start))
	archive := filepath.Join(u.archive, transformerImage+"-"+transformerTag+".oci.tar")
	return u.pass(ctx, u.local, append([]string{"load-image", archive}, u.dirFlag()...)...)
}

//go:embed models.yaml
var modelClass string

// serveExample puts the example models beside the cluster and has one of them served.
func (u *up) serveExample(ctx context.Context, kubeconfig string) error {
	start := time.Now()
	models := filepath.Join(filepath.Dir(kubeconfig), "models")
	if err := copyTree(exampleModels, models); err != nil {
		return err
	}
	manifests := strings.Replace(modelClass, "MODELS", models, 1)
	for _, name := range []string{"models.yaml", "iris.yaml"} {
		text, err := os.ReadFile(filepath.Join(quickstart, name))
		if err != nil {
			return err
		}
		manifests += "---\n" + string(text)
	}
	_, err := patiently(ctx, time.Minute, unreached, func(ctx context.Context) (string, error) {
		// Otherwise kubectl compares with what is there by the description of all kinds, and the API server, once it has put
		// that together, keeps it: 150 MiB.
		return u.kubectl(ctx, kubeconfig, manifests, "apply", "--openapi-patch=false", "--namespace", "default", "-f", "-")
	})
	if err != nil {
		return err
	}
	_, err = u.kubectl(ctx, kubeconfig, "", "wait", "--for=condition=Ready", "--timeout="+u.timeout.String(), "inferenceservice/iris")
	if err != nil {
		state, _ := u.kubectl(ctx, kubeconfig, "", "get", "inferenceservice/iris", "-o", "jsonpath={.status.conditions}")
		return fmt.Errorf("the example model is not ready: %w\n%s", err, state)
	}
	u.say("model", "iris ready in %s", since(start))
	return nil
}

// askExample shows the model's answer, and the line with which a person gets the same.
func (u *up) askExample(ctx context.Context, kubeconfig string, throughGateway bool) error {
	u.heading("the model")
	table, err := u.kubectl(ctx, kubeconfig, "", "get", "inferenceservices", "--all-namespaces")
	if err != nil {
		return err
	}
	url, err := u.exampleURL(ctx, kubeconfig, throughGateway)
	if err != nil {
		return err
	}
	url += "/v1/models/iris:predict"
	answer, err := patiently(ctx, time.Minute, always, func(ctx context.Context) (string, error) { return ask(ctx, url, exampleInput) })
	if err != nil {
		return fmt.Errorf("asking the example model: %w", err)
	}
	fmt.Fprintf(u.out, "%s\n\n$ curl -d @%s %s\n%s\n", table, exampleInput, url, answer)
	return nil
}

// exampleURL is what the service says of itself. Without a gateway nothing leads there, and its Service is asked.
func (u *up) exampleURL(ctx context.Context, kubeconfig string, throughGateway bool) (string, error) {
	if throughGateway {
		return u.kubectl(ctx, kubeconfig, "", "get", "inferenceservice", "iris", "-o", "jsonpath={.status.url}")
	}
	address, err := u.kubectl(ctx, kubeconfig, "", "get", "service", "iris-predictor", "-o", "jsonpath={.spec.clusterIP}")
	return "http://" + address, err
}

func always(error) bool { return true }

// unreached tells whether the API server could not reach the manager. Any other refusal is meant.
func unreached(err error) bool { return strings.Contains(err.Error(), "failed calling webhook") }

// patiently tries again, because a pod is ready a moment before its Service leads to it.
func patiently(ctx context.Context, limit time.Duration, again func(error) bool, try func(context.Context) (string, error)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		answer, err := try(ctx)
		if err == nil || !again(err) {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-tick.C:
		}
	}
}

func ask(ctx context.Context, url, input string) (string, error) {
	body, err := os.Open(input)
	if err != nil {
		return "", err
	}
	defer func() { _ = body.Close() }()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{Proxy: nil, DialContext: dialLocal}}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", response.Status, answer)
	}
	return strings.TrimSpace(string(answer)), nil
}

// dialLocal knows the names of this machine, as curl and browsers do, whether or not the machine's resolver does.
func dialLocal(ctx context.Context, network, address string) (net.Conn, error) {
	if host, port, err := net.SplitHostPort(address); err == nil && strings.HasSuffix(host, "."+localDomain) {
		address = net.JoinHostPort("127.0.0.1", port)
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// kubectl is the one that comes with the cluster, since none may be installed.
func (u *up) kubectl(ctx context.Context, kubeconfig, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, u.local, append([]string{"kubectl", "--kubeconfig", kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var told bytes.Buffer
	cmd.Stderr = &told
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(told.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// copyTree makes copies that every user can read, whatever the umask was when the repository was cloned.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		if d.IsDir() {
			return errors.Join(os.MkdirAll(target, 0o755), os.Chmod(target, 0o755))
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return errors.Join(os.WriteFile(target, data, 0o644), os.Chmod(target, 0o644))
	})
}
