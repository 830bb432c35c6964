// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/modelplane/modelplane/internal/fetch/transfer"
)

// Writer is a container that blobs are put into. AZURE_SERVICE_URL or AZURE_ACCOUNT_NAME says in which account it is.
func Writer(container string, env func(string) string) (*Source, error) {
	account, service := env("AZURE_ACCOUNT_NAME"), env("AZURE_SERVICE_URL")
	if service == "" && account == "" {
		return nil, errors.New("neither AZURE_SERVICE_URL nor AZURE_ACCOUNT_NAME says which account it is in; set one of them in the secret")
	}
	base, err := url.Parse(strings.TrimSuffix(cmp.Or(service, "https://"+account+".blob.core.windows.net"), "/"))
	if err != nil || base.Host == "" {
		return nil, errors.New("AZURE_SERVICE_URL is no address; write https://ACCOUNT.blob.core.windows.net")
	}
	if account == "" {
		account, _, _ = strings.Cut(base.Host, ".")
	}
	return &Source{account: account, base: base, container: container, env: env}, nil
}

// Put writes one blob of the container. One at a time.
func (s *Source) Put(ctx context.Context, c *transfer.Client, key string, body []byte, contentType string) error {
	if s.signer == nil {
		s.signer = newSigner(s, c.Aside(), time.Now)
	}
	// The length is signed; the transport sends its own.
	header := http.Header{"X-Ms-Blob-Type": {"BlockBlob"}, "Content-Length": {strconv.Itoa(len(body))}}
	if contentType != "" {
		header.Set("Content-Type", contentType)
	}
	_, _, err := c.Do(ctx, transfer.Request{
		Method: http.MethodPut, URL: s.address(key, nil), Header: header, Body: string(body), Sign: s.signer.sign,
	}, pageLimit)
	return err
}
