// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/cli/explain"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/process/command"
)

// Known is what explain must be told: the kinds that have a controller, and
// what is special about them.
type Known struct {
	Scheme      *runtime.Scheme
	Controllers []engine.Controller
	About       []explain.About
}

// Verdict is the end of a command that did what it should and has bad news.
// They are printed already.
type Verdict struct{ text string }

func (v *Verdict) Error() string { return v.text }

// ExitCode tells scripts that the object is not ready.
func (v *Verdict) ExitCode() int { return command.ExitNo }

// Silent says that there is nothing left to print.
func (v *Verdict) Silent() bool { return true }

// explainCall is what the command line says.
type explainCall struct {
	kind, name                     string
	namespace, kubeconfig, context string
	output                         string
	self                           string
}

// NewExplainCommand is `modelplane explain`. What is known is asked for when the
// command runs.
func NewExplainCommand(known func() (*Known, error)) *cobra.Command {
	call := &explainCall{}
	c := &cobra.Command{
		Use:   "explain KIND/NAME",
		Short: "Say why an object in the cluster is not ready, and what to do",
		Long: `Reads an object, what was made of it and its pods, and prints the tree with the
state of each, the first cause and the next step. It only reads, with your own
permissions; what you may not read is named and left out.

Exit code: 0 ready, 2 not ready, 1 failed (no such object, no cluster), 64 wrong call.`,
		Example: `  modelplane explain inferenceservice/iris
  modelplane explain isvc iris -n models -o json
  kubectl modelplane explain inferencegraph/pipeline --context staging`,
		Args:    call.args,
		PreRunE: func(*cobra.Command, []string) error { return call.check() },
		RunE: func(cmd *cobra.Command, _ []string) error {
			call.self = cmd.CommandPath()
			return call.run(cmd.Context(), known, cmd.OutOrStdout())
		},
	}
	c.Flags().StringVarP(&call.namespace, "namespace", "n", "", "namespace of the object (default that of the context)")
	c.Flags().StringVar(&call.kubeconfig, "kubeconfig", "", "how to reach the cluster (default KUBECONFIG or ~/.kube/config)")
	c.Flags().StringVar(&call.context, "context", "", "context of the kubeconfig (default its current one)")
	c.Flags().StringVarP(&call.output, "output", "o", "text", "how to print: text or json")
	return c
}

// args takes KIND/NAME and, as kubectl does, KIND NAME.
func (e *explainCall) args(_ *cobra.Command, args []string) error {
	words := args
	if len(args) == 1 {
		words = strings.Split(args[0], "/")
	}
	if len(words) != 2 || words[0] == "" || words[1] == "" {
		return errors.New("name one object as KIND/NAME, such as inferenceservice/iris")
	}
	e.kind, e.name = words[0], words[1]
	return nil
}

func (e *explainCall) check() error {
	if e.output != "text" && e.output != "json" {
		return fmt.Errorf("--output %q is unknown; use text or json", e.output)
	}
	return nil
}

func (e *explainCall) run(ctx context.Context, known func() (*Known, error), out io.Writer) error {
	k, err := known()
	if err != nil {
		return err
	}
	cfg, err := e.connect()
	if err != nil {
		return err
	}
	explainer, err := newExplainer(cfg, k)
	if err != nil {
		return err
	}
	explainer.Kubectl, explainer.Self = "kubectl"+e.flags(), e.self+e.flags()
	report, err := explainer.Explain(ctx, e.kind, e.namespace, e.name)
	if err != nil {
		return err
	}
	if err := e.print(out, report); err != nil {
		return err
	}
	if !report.Ready {
		return &Verdict{text: fmt.Sprintf("%s %s is not ready", report.Kind, report.Name)}
	}
	return nil
}

// connect finds the cluster and the namespace as kubectl does.
func (e *explainCall) connect() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = e.kubeconfig
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: e.context})
	cfg, err := loaded.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no cluster to talk to: give --kubeconfig or set KUBECONFIG")
	}
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	if e.namespace == "" {
		if e.namespace, _, err = loaded.Namespace(); err != nil {
			return nil, fmt.Errorf("read the kubeconfig: %w", err)
		}
	}
	const patience = 30 * time.Second
	cfg.Timeout = patience
	cfg.QPS = -1 // some thirty requests, once
	cfg.WarningHandler = rest.NoWarnings{}
	return cfg, nil
}

func newExplainer(cfg *rest.Config, k *Known) (*explain.Explainer, error) {
	served, err := discover(cfg)
	if err != nil {
		return nil, err
	}
	reader, err := client.New(cfg, client.Options{Scheme: k.Scheme, Mapper: restmapper.NewDiscoveryRESTMapper(served)})
	if err != nil {
		return nil, fmt.Errorf("reach the cluster: %w", err)
	}
	return &explain.Explainer{
		Reader: reader, Served: served, Scheme: k.Scheme, Controllers: k.Controllers, About: k.About, Now: time.Now,
	}, nil
}

// discover asks the cluster what it serves. An API that does not answer counts
// as not served.
func discover(cfg *rest.Config) ([]*restmapper.APIGroupResources, error) {
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("reach the cluster: %w", err)
	}
	served, err := restmapper.GetAPIGroupResources(d)
	if err != nil {
		return nil, fmt.Errorf("ask the cluster at %s what it serves: %w", cfg.Host, err)
	}
	return served, nil
}

func (e *explainCall) print(out io.Writer, report *explain.Report) error {
	if e.output == "text" {
		return report.Text(out, lookOf(out, os.Getenv))
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(report)
}

// flags lead other commands to the same cluster.
func (e *explainCall) flags() string {
	text := ""
	if e.kubeconfig != "" {
		text += " --kubeconfig " + quote(e.kubeconfig)
	}
	if e.context != "" {
		text += " --context " + quote(e.context)
	}
	return text
}

// quote protects a word from the shell, where it needs it.
func quote(s string) string {
	const harmless = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@=+,"
	if strings.Trim(s, harmless) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// lookOf is what the terminal can show: colours only on one, and letters beyond
// ASCII only where the locale has them.
func lookOf(out io.Writer, getenv func(string) string) explain.Look {
	look := explain.Look{ASCII: true}
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale := strings.ToUpper(getenv(name)); locale != "" {
			look.ASCII = !strings.Contains(locale, "UTF-8") && !strings.Contains(locale, "UTF8")
			break
		}
	}
	if f, ok := out.(*os.File); ok && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb" {
		info, err := f.Stat()
		look.Colour = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return look
}
