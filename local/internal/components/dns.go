// SPDX-License-Identifier: Apache-2.0

package components

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	_ "github.com/coredns/coredns/plugin/bind"       // listens on the node's address only
	_ "github.com/coredns/coredns/plugin/cache"      // spares the machine's own resolver
	_ "github.com/coredns/coredns/plugin/errors"     // says in the log what failed
	_ "github.com/coredns/coredns/plugin/forward"    // asks the machine's own resolver for other names
	_ "github.com/coredns/coredns/plugin/health"     // tells that it runs
	_ "github.com/coredns/coredns/plugin/kubernetes" // knows Services
	_ "github.com/coredns/coredns/plugin/ready"      // tells that it knows all Services
)

// runDNS enters CoreDNS with the few plugins above instead of through its own main package, which links all
// of them and takes names like -version in the flag set that every program here shares.
func runDNS() int {
	flags := flag.NewFlagSet("coredns", flag.ContinueOnError)
	conf := flags.String("conf", "Corefile", "file to read the configuration from (also spelt --conf)")
	switch err := flags.Parse(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	if err := serveDNS(*conf); err != nil {
		fmt.Fprintln(os.Stderr, "coredns:", err)
		return 1
	}
	return 0
}

func serveDNS(conf string) error {
	text, err := os.ReadFile(conf)
	if err != nil {
		return err
	}
	caddy.AppName, caddy.Quiet, dnsserver.Quiet = "CoreDNS", true, true
	caddy.TrapSignals()
	instance, err := caddy.Start(caddy.CaddyfileInput{Filepath: conf, Contents: text, ServerTypeName: "dns"})
	if err != nil {
		return err
	}
	instance.Wait()
	return nil
}
