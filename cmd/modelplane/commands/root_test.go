// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/process/command"
	"github.com/modelplane/modelplane/internal/process/command/commandtest"
	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/version"
)

// asCommand makes the test binary behave as modelplane itself, for tests that need a process.
const asCommand = "TEST_AS_MODELPLANE"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(command.Execute(New(), os.Args[1:], os.Stderr))
	}
	testkit.Main(m)
}

func TestWrongCallsAreOneLine(t *testing.T) {
	for _, c := range []struct {
		args []string
		env  map[string]string
		want string
	}{
		{args: []string{"nonsense"}, want: `unknown command "nonsense"`},
		{args: []string{"manager", "--nonsense"}, want: "unknown flag: --nonsense"},
		{args: []string{"manager", "more"}, want: `unknown command "more"`},
		{args: []string{"manager", "--workers=many"}, want: "--workers"},
		{args: []string{"manager", "--workers=0"}, want: "--workers must be at least 1"},
		{args: []string{"manager", "--enable=serving,servin"}, want: `no domain "servin"; choose from serving, modelmesh, modelregistry, maas, mlflow`},
		{args: []string{"manager"}, env: map[string]string{"MODELPLANE_ENABLE": "x"}, want: `no domain "x"`},
		{args: []string{"manager"}, env: map[string]string{"MODELPLANE_WEBHOOK_PORT": "x"}, want: "MODELPLANE_WEBHOOK_PORT"},
		{args: []string{"manager", "--profiling-bind-address=:6060"}, want: "--profiling-allow-remote"},
		{args: []string{"manager", "--log-level=loud"}, want: "--log-level"},
		{args: []string{"manager", "--log-format=xml"}, want: "--log-format"},
		{args: []string{"manager", "--kube-api-burst=0"}, want: "--kube-api-burst"},
		{args: []string{"catalog", "--tls-key-file=x"}, want: "--tls-cert-file"},
		{args: []string{"maas-api", "--secure"}, want: "--tls-self-signed"},
		{args: []string{"maas-api", "--port=8080", "--secure"}, want: "--address"},
		{args: []string{"maas-api", "--tenant-name="}, want: "--tenant-name"},
		{args: []string{"maas-api"}, env: map[string]string{"API_KEY_MAX_EXPIRATION_DAYS": "0"}, want: "--api-key-max-expiration-days"},
		{args: []string{"maas-api"}, env: map[string]string{"METRICS_PORT": "x"}, want: "METRICS_PORT"},
		{args: []string{"version", "--output=xml"}, want: "--output"},
		{args: []string{"explain", "isvc"}, want: "KIND/NAME"},
		{args: []string{"plan"}, want: "filename"},
		{args: []string{"storage-initializer"}, want: "0 arguments are no pairs"}, // still there for images that people named themselves
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			commandtest.WrongCall(t, New(), c.args, c.want)
		})
	}
}

type coded int

func (c coded) Error() string { return "refused" }
func (c coded) ExitCode() int { return int(c) }

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		code   int
		stderr string
	}{
		{name: "fine"},
		{name: "failed", err: errors.New("no luck\nat all"), code: command.ExitFailed, stderr: "modelplane: no luck; at all\n"},
		{name: "already in the log", err: &command.Failure{Err: errors.New("no luck"), Logged: true}, code: command.ExitFailed},
		{name: "a code of its own", err: coded(7), code: 7, stderr: "modelplane: refused\n"},
		{name: "all is printed already", err: &cli.Verdict{}, code: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := New()
			root.AddCommand(&cobra.Command{Use: "try", RunE: func(*cobra.Command, []string) error { return c.err }})
			var stderr bytes.Buffer
			if code := command.Execute(root, []string{"try"}, &stderr); code != c.code || stderr.String() != c.stderr {
				t.Errorf("exit code %d, stderr %q; want %d, %q", code, &stderr, c.code, c.stderr)
			}
		})
	}
}

func TestEnvironmentStandsInForFlags(t *testing.T) {
	var f managerFlags
	c := &cobra.Command{}
	f.register(c)
	if err := c.ParseFlags([]string{"--workers=3"}); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"MODELPLANE_WORKERS": "7", "MODELPLANE_ENABLE": "maas,mlflow", "MODELPLANE_SHUTDOWN_DELAY": "9s",
		"MODELPLANE_LEADER_ELECT": "false", "WORKERS": "8",
	}
	if err := command.FromEnv(c.Flags(), func(name string) (string, bool) { v, ok := env[name]; return v, ok }); err != nil {
		t.Fatal(err)
	}
	if f.options.Workers != 3 {
		t.Errorf("workers = %d, want the flag to win over the environment", f.options.Workers)
	}
	if got := strings.Join(f.enable, " "); got != "maas mlflow" || f.options.ShutdownDelay.String() != "9s" || f.options.LeaderElection {
		t.Errorf("enable %q, delay %s, leader election %v: the environment was not read", got, f.options.ShutdownDelay, f.options.LeaderElection)
	}
}

func TestOwnNamespace(t *testing.T) {
	file := func(content string, err error) func(string) ([]byte, error) {
		return func(string) ([]byte, error) { return []byte(content), err }
	}
	env := func(value string) func(string) string { return func(string) string { return value } }
	for _, c := range []struct {
		name, env string
		file      func(string) ([]byte, error)
		want      string
	}{
		{"the environment", "from-env", file("from-file", nil), "from-env"},
		{"the pod", "", file("from-file\n", nil), "from-file"},
		{"neither", "", file("", os.ErrNotExist), "modelplane-system"},
	} {
		if got := ownNamespace(env(c.env), c.file); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestVersion(t *testing.T) {
	for output, args := range map[string][]string{"": {"--version"}, "text": {"version", "-o", "text"}, "json": {"version", "-o", "json"}} {
		root := New()
		var stdout bytes.Buffer
		root.SetOut(&stdout)
		if code := command.Execute(root, args, &stdout); code != 0 {
			t.Fatalf("exit code %d: %s", code, &stdout)
		}
		if output != "json" {
			if got := stdout.String(); got != version.Get().String()+"\n" {
				t.Errorf("version printed %q", got)
			}
			continue
		}
		var info version.Info
		if err := json.Unmarshal(stdout.Bytes(), &info); err != nil || info != version.Get() {
			t.Errorf("version printed %s (%v)", &stdout, err)
		}
	}
}

// TestKubectlPlugin: under the name of a plugin, help says what was typed.
func TestKubectlPlugin(t *testing.T) {
	name := os.Args[0]
	t.Cleanup(func() { os.Args[0] = name })
	os.Args[0] = "/usr/local/bin/kubectl-modelplane"
	var stdout, stderr bytes.Buffer
	root := New()
	root.SetOut(&stdout)
	if code := command.Execute(root, []string{"explain", "--help"}, &stderr); code != 0 || !strings.Contains(stdout.String(), "kubectl modelplane explain KIND/NAME") {
		t.Errorf("exit code %d, printed %s%s", code, &stdout, &stderr)
	}
	root = New()
	if code := command.Execute(root, []string{"explain", "isvc"}, &stderr); code != command.ExitUsage || !strings.Contains(stderr.String(), `(see "kubectl modelplane explain --help")`) {
		t.Errorf("exit code %d, printed %s", code, &stderr)
	}
}
