// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/modelplane/modelplane/local/internal/cluster"
)

const balanced = `apiVersion: v1
kind: Service
metadata: {name: %s}
spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{port: %d, protocol: %s}], selector: {app: x}}
---
`

// servicesGetPorts has the addons work with nothing but their own rights: a Service gets its port of this machine, and
// those that cannot have theirs say why.
func (l local) servicesGetPorts() {
	port, busy := l.freePort(), l.freePort()
	other, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(busy)))
	if err != nil {
		l.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	l.apply(cluster.AddonManifests() + "---\n" + fmt.Sprintf(balanced, "first", port, "TCP"))
	l.startAddons(l.TempDir())
	address := func(service string) string {
		return l.kubectl("get", "service", service, "-o", "jsonpath={.status.loadBalancer.ingress[*].hostname}")
	}
	l.eventually("an address for the first", func() error {
		if got := address("first"); got != "localhost" {
			return errors.New(got)
		}
		return nil
	})
	if !listening(port) {
		l.Errorf("nothing listens on port %d", port)
	}
	l.apply(fmt.Sprintf(balanced, "second", port, "TCP") + fmt.Sprintf(balanced, "busy", busy, "TCP") + fmt.Sprintf(balanced, "packets", busy+1, "UDP"))
	for name, want := range map[string]string{
		"second": "is that of the Service default/first", "busy": "end what listens there", "packets": "only TCP is handed on",
	} {
		l.eventually("an event of service "+name, func() error {
			out := l.kubectl("get", "events", "--field-selector", "reason=NoPortOnThisMachine,involvedObject.name="+name, "-o", "jsonpath={.items[*].message}")
			if !strings.Contains(out, want) {
				return errors.New(out)
			}
			return nil
		})
		if got := address(name); got != "" {
			l.Errorf("service %s has the address %s", name, got)
		}
	}
	l.kubectl("delete", "service", "first", "busy", "packets")
	l.eventually("an address for the second", func() error {
		if got := address("second"); got != "localhost" {
			return errors.New(got)
		}
		return nil
	})
	l.kubectl("delete", "service", "second")
	l.eventually("a closed port", func() error {
		if listening(port) {
			return errors.New("something still listens")
		}
		return nil
	})
}

func (l local) freePort() int {
	l.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}

func listening(port int) bool {
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
