// SPDX-License-Identifier: Apache-2.0

// Package entry is what a catalog holds: models, MCP servers, agents and serving runtimes, each with the parts that belong
// to it. A table says which fields a kind has and how each is read, shown, filtered and offered as a filter; there is no
// code per kind. It knows nothing of where entries come from, nor of HTTP.
package entry

// Kind is one sort of entry.
type Kind struct {
	// Asset is how sources, labels and named queries call the kind.
	Asset string
	// Key is the list in a catalog's file.
	Key string
	// Parts are what belongs to an entry, listed below PartsKey in the file; nil if nothing does.
	Parts    *Kind
	PartsKey string
	// Count is the field that tells how many parts there are.
	Count string

	fields map[string]field
	// name is the field that names an entry; "name" if empty.
	name string
	// check says what else is wrong with an entry.
	check func(*Entry) error
}

// field says how one field is treated.
type field struct {
	shape shape
	// option: its values are offered as filters.
	option bool
	// search: free text is looked for in it.
	search bool
	// alias is another name that filters may use. It is also the one that is offered.
	alias string
	// fallback is what it holds if nobody says.
	fallback string
}

type shape int

const (
	text shape = iota
	// list is several texts. A filter compares with each.
	list
	flag
	// license is a text; identifiers are shown as the licence's name.
	license
	// millis is a time, a text of milliseconds since 1970 on the wire.
	millis
	// location is where a file or an image can be had.
	location
	// locations is a list of objects with a location in the field uri.
	locations
	// object is shown as it is. Filters reach into it by dotted names.
	object
	// flags is an object whose members filters may name alone.
	flags
	// document is a text; an object becomes one, as JSON.
	document
	properties
	// hidden is read and not shown.
	hidden
)

// The kinds of entries.
var (
	Models          = &Kind{Asset: "models", Key: "models", Parts: modelArtifacts, PartsKey: "artifacts", fields: modelFields}
	MCPServers      = &Kind{Asset: "mcp_servers", Key: "mcp_servers", Parts: tools, PartsKey: "tools", Count: "toolCount", fields: serverFields, check: checkServer}
	Agents          = &Kind{Asset: "agents", Key: "agents", Parts: templates, PartsKey: "templates", fields: agentFields}
	ServingRuntimes = &Kind{Asset: "serving_runtimes", Key: "serving_runtimes", Parts: versions, PartsKey: "versions", Count: "versionCount", fields: runtimeFields}
)

// Kinds are all of them.
var Kinds = []*Kind{Models, MCPServers, Agents, ServingRuntimes}

// The types of a model's artifacts, and of their metrics.
const (
	ModelArtifact   = "model-artifact"
	MetricsArtifact = "metrics-artifact"

	PerformanceMetrics = "performance-metrics"
	AccuracyMetrics    = "accuracy-metrics"
)

// withResource adds what every entry and part may have.
func withResource(own map[string]field) map[string]field {
	for name, f := range map[string]field{
		"name":                     {shape: text, search: true},
		"externalId":               {shape: text},
		"description":              {shape: text, search: true},
		"customProperties":         {shape: properties},
		"createTimeSinceEpoch":     {shape: millis},
		"lastUpdateTimeSinceEpoch": {shape: millis},
	} {
		if _, ok := own[name]; !ok {
			own[name] = f
		}
	}
	return own
}

var modelFields = withResource(map[string]field{
	"readme":      {shape: text},
	"maturity":    {shape: text, option: true, search: true},
	"language":    {shape: list, option: true},
	"tasks":       {shape: list, option: true, search: true},
	"provider":    {shape: text, option: true, search: true},
	"logo":        {shape: text},
	"license":     {shape: license, option: true, search: true},
	"licenseLink": {shape: text, alias: "license_link"},
	"libraryName": {shape: text, option: true, search: true, alias: "library_name"},
})

var modelArtifacts = &Kind{Asset: "artifacts", fields: withResource(map[string]field{
	"artifactType": {shape: text},
	"metricsType":  {shape: text},
	"uri":          {shape: location},
}), check: checkArtifact}

var serverFields = withResource(map[string]field{
	"provider":           {shape: text, option: true, search: true},
	"logo":               {shape: text},
	"version":            {shape: text},
	"tags":               {shape: list, option: true},
	"license":            {shape: license, option: true},
	"license_link":       {shape: text, alias: "licenseLink"},
	"securityIndicators": {shape: flags},
	"deploymentMode":     {shape: text, option: true},
	"transports":         {shape: list, option: true},
	"artifacts":          {shape: locations},
	"endpoints":          {shape: object},
	"readme":             {shape: text},
	"documentationUrl":   {shape: text},
	"repositoryUrl":      {shape: text},
	"sourceCode":         {shape: text},
	"publishedDate":      {shape: text},
	"lastUpdated":        {shape: text},
	"runtimeMetadata":    {shape: object},
})

// tools of which nobody says what they do are taken for the worst.
var tools = &Kind{Asset: "tools", fields: withResource(map[string]field{
	"accessType": {shape: text, fallback: "execute"},
	"parameters": {shape: object},
	"schema":     {shape: hidden},
})}

var agentFields = withResource(map[string]field{
	"displayName":   {shape: text, search: true},
	"readme":        {shape: text},
	"framework":     {shape: text, option: true, search: true},
	"agentType":     {shape: text, option: true},
	"labels":        {shape: list, option: true, search: true},
	"tags":          {shape: list, option: true},
	"models":        {shape: list, option: true},
	"logo":          {shape: text},
	"repositoryUrl": {shape: text},
	"publishedDate": {shape: text},
	"env":           {shape: object},
	"artifacts":     {shape: locations, fallback: "image-artifact"},
})

var templates = &Kind{Asset: "artifacts", fields: withResource(map[string]field{
	"name":         {shape: text, fallback: "agent.yaml"},
	"artifactType": {shape: text, fallback: "template-artifact"},
	"content":      {shape: document},
})}

var runtimeFields = withResource(map[string]field{
	"displayName":           {shape: text, search: true},
	"provider":              {shape: text, option: true, search: true},
	"readme":                {shape: text},
	"logo":                  {shape: text},
	"tags":                  {shape: list, option: true, search: true},
	"license":               {shape: license, option: true},
	"licenseLink":           {shape: text, alias: "license_link"},
	"documentationUrl":      {shape: text},
	"repositoryUrl":         {shape: text},
	"supportedModelFormats": {shape: object},
	"capabilities":          {shape: flags},
	"publishedDate":         {shape: text},
	"lastUpdated":           {shape: text},
})

var versions = &Kind{Asset: "versions", name: "version", fields: withResource(map[string]field{
	"artifactType":              {shape: text, fallback: "serving-runtime-version"},
	"version":                   {shape: text},
	"image":                     {shape: text},
	"supportLevel":              {shape: text},
	"minimumRHOAIVersion":       {shape: text},
	"supportedModelFormats":     {shape: object},
	"protocolVersions":          {shape: list},
	"recommendedResources":      {shape: object},
	"defaultArgs":               {shape: list},
	"env":                       {shape: object},
	"template":                  {shape: text},
	"servingRuntimeTemplate":    {shape: text},
	"llmInferenceServiceConfig": {shape: text},
	"deprecated":                {shape: flag},
	"publishedDate":             {shape: text},
})}
