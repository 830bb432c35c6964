// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// marker is the file that makes a directory a state directory. It also holds the ports, because a
// kubeconfig that somebody exported must stay valid across a restart.
const marker = "cluster.json"

// ownEntries are the only names that down removes from a state directory.
var ownEntries = []string{"bin", "etcd", "kubeconfig", "kubeconfigs", "logs", "models", "node", "pki", "run", "volumes", lockFile, marker}

// state is the content of the marker file.
type state struct {
	Ports map[string]int `json:"ports"`
	// Node is nil while the cluster is a control plane alone.
	Node *nodeState `json:"node,omitempty"`
}

// claim makes dir a state directory. A directory with somebody else's files in it is refused, so that
// a mistyped --dir never mixes a cluster into a home directory.
func claim(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the state directory: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, marker)); err == nil {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !slices.Contains(ownEntries, e.Name()) {
			return fmt.Errorf("%s is not empty and holds no cluster (found %q); choose another --dir", dir, e.Name())
		}
	}
	return (&state{}).save(dir)
}

// exists tells whether dir is a state directory.
func exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, marker))
	return err == nil
}

func loadState(dir string) (*state, error) {
	path := filepath.Join(dir, marker)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	st := &state{}
	if err := json.Unmarshal(data, st); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w; `modelplane-local down` removes it", path, err)
	}
	return st, nil
}

func (s *state) save(dir string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, marker), append(data, '\n'), 0o600)
}

// portOwners says which process listens on each named port.
var portOwners = map[string]string{
	portEtcd:              nameEtcd,
	portAPIServer:         nameAPIServer,
	portControllerManager: nameControllerManager,
	portScheduler:         nameScheduler,
	portKubelet:           nameKubelet,
	portKubeletHealth:     nameKubelet,
	portProxyHealth:       nameProxy,
	portProxyMetrics:      nameProxy,
	portDNS:               nameDNS,
	portDNSHealth:         nameDNS,
	portDNSReady:          nameDNS,
	portAddonsHealth:      nameAddons,
	portAddonsMetrics:     nameAddons,
}

// choosePorts keeps a recorded port while its process runs or nobody else has taken it, and asks the
// kernel for a free one otherwise.
func (s *state) choosePorts(dir string) error {
	if s.Ports == nil {
		s.Ports = map[string]int{}
	}
	for _, name := range slices.Sorted(maps.Keys(portOwners)) {
		owner := portOwners[name]
		if port, ok := s.Ports[name]; ok {
			if rec, err := readRecord(dir, owner); (err == nil && rec.alive()) || bindable(port) {
				continue
			}
		}
		port, err := s.freePort()
		if err != nil {
			return fmt.Errorf("finding a free port for %s: %w", owner, err)
		}
		s.Ports[name] = port
	}
	return nil
}

// freePort skips ports already promised to another component. It looks below the range from which the
// kernel serves outgoing connections: a port from there may be gone before its component listens.
func (s *state) freePort() (int, error) {
	const lowest, beyond, tries = 20000, 32000, 1000
	for range tries {
		port := lowest + rand.IntN(beyond-lowest)
		if bindable(port) && !slices.Contains(slices.Collect(maps.Values(s.Ports)), port) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("none found between %d and %d in %d tries", lowest, beyond, tries)
}

func bindable(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// writeFile replaces path in one step, so that a reader or a crash never meets half a file.
func writeFile(path string, data []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

// removeState takes away what up has made and the directory itself when nothing else is in it. It
// returns the names of whatever it left alone.
func removeState(dir string) (left []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !slices.Contains(ownEntries, e.Name()) && !strings.HasPrefix(e.Name(), "."+marker+"-") {
			left = append(left, e.Name())
			continue
		}
		if e.Name() == marker {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return left, err
		}
	}
	// The marker goes last: an interrupted removal must still be recognised and finished.
	if err := os.Remove(filepath.Join(dir, marker)); err != nil {
		return left, err
	}
	if len(left) > 0 {
		return left, nil
	}
	return nil, os.Remove(dir)
}
