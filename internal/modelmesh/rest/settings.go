// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Settings are what the pod's variables say.
type Settings struct {
	// ListenPort for HTTP, and the port of the mesh in this pod.
	ListenPort, MeshPort int
	// MeshTLS says that the mesh speaks TLS, and SkipVerify that it need not be the right one.
	MeshTLS, SkipVerify bool
	// MaxMessage is how large a gRPC message may be.
	MaxMessage int
	// CertFile and KeyFile are ours, and the mesh's; without them HTTP is plain. ClientAuth is "", "optional" or
	// "required", and TrustFiles have whom to trust then.
	CertFile, KeyFile string
	ClientAuth        string
	TrustFiles        []string
}

// readSettings takes the variables that the known proxy takes, with its defaults.
func readSettings(env func(string) string) (Settings, error) {
	s := Settings{CertFile: env("MM_TLS_KEY_CERT_PATH"), KeyFile: env("MM_TLS_PRIVATE_KEY_PATH"), ClientAuth: strings.ToLower(env("MM_TLS_CLIENT_AUTH"))}
	for _, n := range []struct {
		name     string
		into     *int
		fallback string
		most     int
	}{
		{"REST_PROXY_LISTEN_PORT", &s.ListenPort, "8008", 65535},
		{"REST_PROXY_GRPC_PORT", &s.MeshPort, "8033", 65535},
		{"REST_PROXY_GRPC_MAX_MSG_SIZE_BYTES", &s.MaxMessage, cmp.Or(env("REST_PROXY_GRPC_MAX_MSG_SIZE"), "16777216"), 1 << 30},
	} {
		value := cmp.Or(env(n.name), n.fallback)
		number, err := strconv.Atoi(value)
		if err != nil || number < 1 || number > n.most {
			return s, fmt.Errorf("%s is %q; it must be a number from 1 to %d", n.name, value, n.most)
		}
		*n.into = number
	}
	for _, b := range []struct {
		name string
		into *bool
	}{{"REST_PROXY_USE_TLS", &s.MeshTLS}, {"REST_PROXY_SKIP_VERIFY", &s.SkipVerify}} {
		value, err := strconv.ParseBool(cmp.Or(env(b.name), "false"))
		if err != nil {
			return s, fmt.Errorf("%s is %q; it must be true or false", b.name, env(b.name))
		}
		*b.into = value
	}
	if env("MM_TLS_PRIVATE_KEY_PASSPHRASE") != "" {
		return s, fmt.Errorf("MM_TLS_PRIVATE_KEY_PASSPHRASE is set, and keys with a passphrase are not supported; mount the key without one")
	}
	err := s.readTrust(env("MM_TLS_TRUST_CERT_PATH"))
	return s, err
}

func (s *Settings) readTrust(list string) error {
	for file := range strings.SplitSeq(list, ",") {
		if file = strings.TrimSpace(file); file != "" {
			s.TrustFiles = append(s.TrustFiles, file)
		}
	}
	switch {
	case (s.CertFile == "") != (s.KeyFile == ""):
		return fmt.Errorf("MM_TLS_KEY_CERT_PATH and MM_TLS_PRIVATE_KEY_PATH belong together; set both or neither")
	case s.ClientAuth == "" || s.ClientAuth == "none":
		s.ClientAuth = ""
	case s.ClientAuth != "optional" && s.ClientAuth != "required":
		return fmt.Errorf("MM_TLS_CLIENT_AUTH is %q; it must be required or optional", s.ClientAuth)
	case len(s.TrustFiles) == 0:
		return fmt.Errorf("MM_TLS_CLIENT_AUTH is set and MM_TLS_TRUST_CERT_PATH is not; name the files with certificates of clients to trust")
	}
	return nil
}
