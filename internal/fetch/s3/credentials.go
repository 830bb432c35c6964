// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/modelplane/modelplane/internal/fetch/transfer"
)

// keys and where they come from. Without an ID requests are not signed.
type keys struct {
	Keys
	expires time.Time // zero for never
	from    string    // in words
}

// vault finds keys and renews those that expire.
type vault struct {
	env    func(string) string
	region string
	client *transfer.Client
	now    func() time.Time

	mu   sync.Mutex
	have *keys
}

// early is how long before they expire keys are renewed.
const early = 5 * time.Minute

// answerLimit bounds what services for credentials answer.
const answerLimit = 1 << 20

func (v *vault) get(ctx context.Context) (keys, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.have != nil && (v.have.expires.IsZero() || v.now().Add(early).Before(v.have.expires)) {
		return *v.have, nil
	}
	k, err := v.find(ctx)
	if err != nil {
		return keys{}, err
	}
	v.have = &k
	return k, nil
}

// find asks in the order that AWS has: variables, the token of the service account, the agent of the node, the node itself.
func (v *vault) find(ctx context.Context) (keys, error) {
	env := v.env
	switch {
	case env("AWS_ACCESS_KEY_ID") != "" && env("AWS_SECRET_ACCESS_KEY") != "":
		return keys{from: "the access key of the secret", Keys: Keys{
			ID: strings.TrimSpace(env("AWS_ACCESS_KEY_ID")), Secret: strings.TrimSpace(env("AWS_SECRET_ACCESS_KEY")),
			Token: strings.TrimSpace(env("AWS_SESSION_TOKEN")),
		}}, nil
	case env("AWS_ROLE_ARN") != "" && env("AWS_WEB_IDENTITY_TOKEN_FILE") != "":
		return v.webIdentity(ctx)
	case env("AWS_CONTAINER_CREDENTIALS_FULL_URI") != "":
		return v.agent(ctx)
	case on(env("AWS_EC2_METADATA_DISABLED")) || env("AWS_ENDPOINT_URL") != "" || env("S3_ENDPOINT") != "":
		return keys{from: "no credentials"}, nil
	}
	k, err := v.node(ctx)
	if err != nil {
		return keys{from: "no credentials"}, nil //nolint:nilerr // a machine elsewhere has no such service
	}
	return k, nil
}

// webIdentity exchanges the token of the service account for keys of a role.
func (v *vault) webIdentity(ctx context.Context) (keys, error) {
	token, err := os.ReadFile(v.env("AWS_WEB_IDENTITY_TOKEN_FILE"))
	if err != nil {
		return keys{}, errors.New("the token of the service account for AWS cannot be read; check AWS_WEB_IDENTITY_TOKEN_FILE")
	}
	form := url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"}, "RoleArn": {v.env("AWS_ROLE_ARN")},
		"RoleSessionName":  {cmp.Or(v.env("AWS_ROLE_SESSION_NAME"), "modelplane-storage-initializer")},
		"WebIdentityToken": {strings.TrimSpace(string(token))},
	}
	body, _, err := v.client.Do(ctx, transfer.Request{
		Method: http.MethodPost,
		URL:    cmp.Or(v.env("AWS_ENDPOINT_URL_STS"), "https://sts."+v.region+"."+domain(v.region)+"/"),
		Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}},
		Body:   form.Encode(),
	}, answerLimit)
	if err != nil {
		return keys{}, fmt.Errorf("the role of the service account cannot be assumed: %w", err)
	}
	var answer struct {
		Credentials struct {
			AccessKeyID     string `xml:"AccessKeyId"`
			SecretAccessKey string
			SessionToken    string
			Expiration      time.Time
		} `xml:"AssumeRoleWithWebIdentityResult>Credentials"`
	}
	if xml.Unmarshal(body, &answer) != nil || answer.Credentials.AccessKeyID == "" {
		return keys{}, errors.New("the role of the service account cannot be assumed: the answer has no keys")
	}
	c := answer.Credentials
	return keys{Keys{c.AccessKeyID, c.SecretAccessKey, c.SessionToken}, c.Expiration, "the role of the service account"}, nil
}

// document is how agents and nodes hand out keys.
type document struct {
	AccessKeyID     string `json:"AccessKeyId"`
	SecretAccessKey string
	Token           string
	Expiration      time.Time
}

func (v *vault) agent(ctx context.Context) (keys, error) {
	header := http.Header{}
	if token := v.env("AWS_CONTAINER_AUTHORIZATION_TOKEN"); token != "" {
		header.Set("Authorization", token)
	}
	if file := v.env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); file != "" {
		token, err := os.ReadFile(file)
		if err != nil {
			return keys{}, errors.New("the token for the agent of AWS cannot be read; check AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
		}
		header.Set("Authorization", strings.TrimSpace(string(token)))
	}
	return v.document(ctx, v.env("AWS_CONTAINER_CREDENTIALS_FULL_URI"), header, "the identity of the pod")
}

// node asks the machine, which only machines of AWS answer.
func (v *vault) node(ctx context.Context) (keys, error) {
	base := cmp.Or(strings.TrimSuffix(v.env("AWS_EC2_METADATA_SERVICE_ENDPOINT"), "/"), "http://169.254.169.254")
	token, err := v.client.Once(ctx, transfer.Request{Method: http.MethodPut, URL: base + "/latest/api/token",
		Header: http.Header{"X-Aws-Ec2-Metadata-Token-Ttl-Seconds": {"21600"}}}, answerLimit, time.Second)
	if err != nil {
		return keys{}, err
	}
	header := http.Header{"X-Aws-Ec2-Metadata-Token": {string(token)}}
	place := base + "/latest/meta-data/iam/security-credentials/"
	role, err := v.client.Once(ctx, transfer.Request{URL: place, Header: header}, answerLimit, time.Second)
	if err != nil {
		return keys{}, err
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(role)), "\n")
	return v.document(ctx, place+url.PathEscape(first), header, "the role of the node")
}

func (v *vault) document(ctx context.Context, address string, header http.Header, from string) (keys, error) {
	body, _, err := v.client.Do(ctx, transfer.Request{URL: address, Header: header}, answerLimit)
	if err != nil {
		return keys{}, fmt.Errorf("keys for AWS cannot be had from %s: %w", from, err)
	}
	var d document
	if json.Unmarshal(body, &d) != nil || d.AccessKeyID == "" {
		return keys{}, fmt.Errorf("keys for AWS cannot be had from %s: the answer has none", from)
	}
	return keys{Keys{d.AccessKeyID, d.SecretAccessKey, d.Token}, d.Expiration, from}, nil
}
