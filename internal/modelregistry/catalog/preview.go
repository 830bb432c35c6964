// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelplane/modelplane/internal/modelregistry/catalog/entry"
	"github.com/modelplane/modelplane/internal/modelregistry/catalog/hub"
	"github.com/modelplane/modelplane/internal/modelregistry/catalog/sources"
)

// previewer shows which models a source would have, before anybody makes it. Whoever reaches the catalog may ask, so it
// reads no other files and asks no other hubs than the sources that there are, and sends no token to where it is not sent
// anyway.
type previewer struct {
	*api
	getenv func(string) string
	// atOnce is full while previews are under way.
	atOnce chan struct{}
	// reading keeps files from being taken apart at the same time, which takes much memory.
	reading sync.Mutex
}

// Bounds of a preview.
const (
	maxPreview     = maxPreviewData + sources.MaxSourcesFile + 1<<20
	maxPreviewData = 2 << 20 // a ConfigMap has room for half of it
	previewTime    = 45 * time.Second
)

type previewed struct {
	Name     string `json:"name"`
	Included bool   `json:"included"`
}

type previewPage struct {
	list[previewed]
	Summary struct {
		Total    int `json:"totalModels"`
		Included int `json:"includedModels"`
		Excluded int `json:"excludedModels"`
	} `json:"summary"`
}

func unusable(err error) error {
	return &refusal{http.StatusUnprocessableEntity, "The source cannot be used: " + err.Error() + "."}
}

func (p *previewer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		p.fail(w, r, &refusal{http.StatusMethodNotAllowed, "A preview is asked for by POST."})
		return
	}
	select {
	case p.atOnce <- struct{}{}:
		defer func() { <-p.atOnce }()
	default:
		w.Header().Set("Retry-After", "5")
		p.fail(w, r, &refusal{http.StatusTooManyRequests, "Other previews are under way; try again in a few seconds."})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), previewTime)
	defer cancel()
	page, err := p.answer(ctx, r)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	p.write(w, r, http.StatusOK, page)
}

func (p *previewer) answer(ctx context.Context, r *http.Request) (any, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, bad("The query cannot be read.")
	}
	l, err := readListing(query, "NAME")
	if err != nil {
		return nil, err
	}
	status := query.Get("filterStatus")
	if status == "" {
		status = "all"
	}
	if !slices.Contains([]string{"all", "included", "excluded"}, status) {
		return nil, bad("filterStatus must be all, included or excluded.")
	}
	config, data, err := parts(r)
	if err != nil {
		return nil, err
	}
	s, err := sources.ParseOne(config)
	if err != nil {
		return nil, unusable(err)
	}
	names, err := p.names(ctx, s, data)
	if err != nil {
		return nil, err
	}
	return previewOf(l, names, status), nil
}

func previewOf(l listing, names []previewed, status string) previewPage {
	var out previewPage
	var found []previewed
	for _, n := range names {
		out.Summary.Total++
		if n.Included {
			out.Summary.Included++
		} else {
			out.Summary.Excluded++
		}
		if status == "all" || n.Included == (status == "included") {
			found = append(found, n)
		}
	}
	out.list = paged(l, found, func(n previewed) key { return textKey(n.Name, n.Name) })
	return out
}

// parts of the form: the source, and the file that it would have.
func parts(r *http.Request) (config, data []byte, err error) {
	reader, err := r.MultipartReader()
	if err != nil {
		return nil, nil, bad("The body must be a form of type multipart/form-data with the file config.")
	}
	for {
		part, err := reader.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, bad("The form cannot be read; it may have at most %d bytes.", maxPreview)
		}
		limit, into := int64(sources.MaxSourcesFile), &config
		switch part.FormName() {
		case "config":
		case "catalogData":
			limit, into = maxPreviewData, &data
		default:
			continue
		}
		read, err := io.ReadAll(io.LimitReader(part, limit+1))
		if err != nil || int64(len(read)) > limit {
			return nil, nil, bad("%s cannot be read; it may have at most %d bytes.", part.FormName(), limit)
		}
		*into = read
	}
	if config == nil {
		return nil, nil, bad("The form has no file config.")
	}
	return config, data, nil
}

func (p *previewer) names(ctx context.Context, s sources.Source, data []byte) ([]previewed, error) {
	switch s.Type {
	case "yaml":
		return p.fromFile(s, data)
	case "hf":
		return p.fromHub(ctx, s)
	}
	return nil, unusable(errors.New("type must be yaml or hf"))
}

func (p *previewer) fromFile(s sources.Source, data []byte) ([]previewed, error) {
	if data == nil {
		path, err := p.known(s)
		if err != nil {
			return nil, err
		}
		if data, err = sources.ReadFile(path, sources.MaxCatalogFile); err != nil {
			return nil, unusable(errors.New("its file cannot be read"))
		}
	}
	p.reading.Lock()
	defer p.reading.Unlock()
	objects, _, err := sources.Objects(entry.Models, data)
	if err != nil {
		return nil, unusable(err)
	}
	selection := sources.Selection{Included: s.Included, Excluded: s.Excluded}
	var out []previewed
	for _, object := range objects {
		if name, _ := object["name"].(string); name != "" {
			out = append(out, previewed{name, selection.Allows(name)})
		}
	}
	return out, nil
}

// known is the path of a file that a source has already.
func (p *previewer) known(s sources.Source) (string, error) {
	for _, have := range p.now().sources {
		s.Dir = have.Dir
		if have.Kind == entry.Models && s.Path() != "" && have.Path() == s.Path() {
			return have.Path(), nil
		}
	}
	return "", unusable(errors.New("yamlCatalogPath is not the file of a source; send the file as catalogData"))
}

func (p *previewer) fromHub(ctx context.Context, s sources.Source) ([]previewed, error) {
	variables := p.tokensFor(address(s))
	if variables == nil {
		return nil, unusable(errors.New("url is not that of a source; leave it out"))
	}
	h, err := hub.New(s, func(variable string) string {
		if !slices.Contains(variables, variable) {
			return ""
		}
		return p.getenv(variable)
	})
	if err != nil {
		return nil, unusable(err)
	}
	names, failed, err := h.Names(ctx)
	if err == nil && len(failed) > 0 && len(names) == 0 {
		err = errors.New(sources.Told(failed))
	}
	if err != nil {
		return nil, unusable(err)
	}
	var out []previewed
	for _, name := range names {
		out = append(out, previewed{name, h.Allows(name)})
	}
	return out, nil
}

func address(s sources.Source) string {
	return cmp.Or(strings.TrimSuffix(s.Text("url"), "/"), hub.DefaultURL)
}

// tokensFor are the variables whose token goes to this hub anyway; nil if nobody asks it.
func (p *previewer) tokensFor(at string) []string {
	var out []string
	if at == hub.DefaultURL {
		out = append(out, hub.DefaultTokenVariable)
	}
	for _, have := range p.now().sources {
		if have.Type == "hf" && address(have.Source) == at {
			out = append(out, cmp.Or(have.Text("apiKeyEnvVar"), hub.DefaultTokenVariable))
		}
	}
	return out
}
