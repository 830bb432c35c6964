// SPDX-License-Identifier: Apache-2.0

// Package entity is the table of everything that a registry keeps: for each kind its fields, what clients may say of
// them, and where they are stored. Handlers, queries, filters and the API document are made from it, so that none of
// them can know a field that another does not.
//
// It holds facts and reads and writes their JSON; it knows neither HTTP nor SQL.
package entity

// Table is one of the three families of tables in which everything is stored.
type Table string

// The families, by the name of their main table. Each has a second one for properties, of the same name with Property
// behind it.
const (
	Contexts   Table = "Context"
	Artifacts  Table = "Artifact"
	Executions Table = "Execution"
)

// Kind is one kind of entity.
type Kind struct {
	// Name of the kind in the API, and Type is its name in the table of types.
	Name, Type string
	Table      Table
	// Plural is the path below which entities are, Singular the one that finds a single one; empty if there is none.
	Plural, Singular string
	// Parent owns the entities of this kind.
	Parent *Parent
	// ArtifactType tells artifacts apart, which have one path.
	ArtifactType string
	// NeedsName: without one, others get a name that nobody else has.
	NeedsName bool
	// Fields beyond those that everything has.
	Fields []Field
}

// Parent says to whom entities of a kind belong.
type Parent struct {
	Kind string
	// Field is the one of the child that names its parent; empty if only the path does.
	Field string
	// Below is the path of the children below their parent.
	Below string
	// Optional: an entity may belong to nobody.
	Optional bool
}

// FieldType is what a field holds.
type FieldType int

// The types of fields, and how they are written in JSON.
const (
	Text   FieldType = iota // a string
	ID                      // the id of another entity, as a string of digits
	Number                  // a whole number, as a string of digits
	Step                    // a whole number
	Double                  // a number with a fraction
	Enum                    // one of Words
	Texts                   // a list of strings
)

// Place is where a field is stored.
type Place int

// The places of fields.
const (
	InProperty Place = iota // in a row of the property table that is not a custom one
	InColumn                // in a column of the main table
	InPath                  // nowhere: it follows from what the entity belongs to
)

// Field is one field of a kind.
type Field struct {
	Name string
	Type FieldType
	At   Place
	// Stored is the name of the property or of the column.
	Stored string
	// Words are what an Enum may be. In a column it is stored as its place among them.
	Words []string
	// Default is what it is when nobody says.
	Default string
	// Required when the entity is made. Fixed from then on.
	Required, Fixed bool
	// Of is the kind that an ID is of.
	Of string
}

var (
	stateWords    = []string{"LIVE", "ARCHIVED"}
	artifactWords = []string{"UNKNOWN", "PENDING", "LIVE", "MARKED_FOR_DELETION", "DELETED", "ABANDONED", "REFERENCE"}
	serveWords    = []string{"UNKNOWN", "NEW", "RUNNING", "COMPLETE", "FAILED", "CACHED", "CANCELED"}
	runWords      = []string{"RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"}
)

// Names of kinds that others refer to.
const (
	registeredModel    = "RegisteredModel"
	modelVersion       = "ModelVersion"
	servingEnvironment = "ServingEnvironment"
	inferenceService   = "InferenceService"
	experiment         = "Experiment"
	experimentRun      = "ExperimentRun"
)

func text(name, stored string) Field { return Field{Name: name, Stored: stored} }

func state(words []string) Field {
	return Field{Name: "state", Type: Enum, Stored: "state", Words: words, Default: words[0]}
}

func reference(name, stored, of string) Field {
	return Field{Name: name, Type: ID, Stored: stored, Of: of}
}

// fixed is a reference that every entity of the kind has from its beginning.
func fixed(name, stored, of string) Field {
	f := reference(name, stored, of)
	f.Required, f.Fixed = true, true
	return f
}

// artifact is what all artifacts have, with the fields of one kind of them.
func artifact(name, typ, artifactType string, fields ...Field) *Kind {
	common := []Field{
		{Name: "state", Type: Enum, At: InColumn, Stored: "state", Words: artifactWords},
		{Name: "experimentId", Type: ID, At: InPath, Stored: "experiment_id", Of: experiment},
		{Name: "experimentRunId", Type: ID, At: InPath, Stored: "experiment_run_id", Of: experimentRun},
	}
	return &Kind{Name: name, Type: typ, Table: Artifacts, ArtifactType: artifactType, Fields: append(fields, common...)}
}

var uri = Field{Name: "uri", At: InColumn, Stored: "uri"}

// Kinds are all kinds, parents before their children.
var Kinds = []*Kind{
	{
		Name: registeredModel, Type: "kf.RegisteredModel", Table: Contexts, Plural: "registered_models", Singular: "registered_model", NeedsName: true,
		Fields: []Field{
			text("owner", "owner"), state(stateWords),
			text("readme", "readme"), text("maturity", "maturity"), {Name: "language", Type: Texts, Stored: "language"},
			{Name: "tasks", Type: Texts, Stored: "tasks"}, text("provider", "provider"), text("logo", "logo"), text("license", "license"),
			text("licenseLink", "license_link"), text("libraryName", "library_name"),
		},
	},
	{
		Name: modelVersion, Type: "kf.ModelVersion", Table: Contexts, Plural: "model_versions", Singular: "model_version", NeedsName: true,
		Parent: &Parent{Kind: registeredModel, Field: "registeredModelId", Below: "versions"},
		Fields: []Field{fixed("registeredModelId", "registered_model_id", registeredModel), text("author", "author"), state(stateWords)},
	},
	{
		Name: experiment, Type: "kf.Experiment", Table: Contexts, Plural: "experiments", Singular: "experiment", NeedsName: true,
		Fields: []Field{text("owner", "owner"), state(stateWords)},
	},
	{
		Name: experimentRun, Type: "kf.ExperimentRun", Table: Contexts, Plural: "experiment_runs", Singular: "experiment_run",
		Parent: &Parent{Kind: experiment, Field: "experimentId", Below: "experiment_runs"},
		Fields: []Field{
			fixed("experimentId", "experiment_id", experiment), text("owner", "owner"), state(stateWords),
			{Name: "status", Type: Enum, Stored: "status", Words: runWords, Default: runWords[0]},
			{Name: "startTimeSinceEpoch", Type: Number, Stored: "start_time_since_epoch"},
			{Name: "endTimeSinceEpoch", Type: Number, Stored: "end_time_since_epoch"},
		},
	},
	{
		Name: servingEnvironment, Type: "kf.ServingEnvironment", Table: Contexts, Plural: "serving_environments", Singular: "serving_environment", NeedsName: true,
	},
	{
		Name: inferenceService, Type: "kf.InferenceService", Table: Contexts, Plural: "inference_services", Singular: "inference_service",
		Parent: &Parent{Kind: servingEnvironment, Field: "servingEnvironmentId", Below: "inference_services"},
		Fields: []Field{
			fixed("registeredModelId", "registered_model_id", registeredModel), fixed("servingEnvironmentId", "serving_environment_id", servingEnvironment),
			reference("modelVersionId", "model_version_id", modelVersion), text("runtime", "runtime"),
			{Name: "desiredState", Type: Enum, Stored: "desired_state", Words: []string{"DEPLOYED", "UNDEPLOYED"}, Default: "DEPLOYED"},
		},
	},
	{
		Name: "ServeModel", Type: "kf.ServeModel", Table: Executions,
		Parent: &Parent{Kind: inferenceService, Below: "serves"},
		Fields: []Field{
			fixed("modelVersionId", "model_version_id", modelVersion),
			{Name: "lastKnownState", Type: Enum, At: InColumn, Stored: "last_known_state", Words: serveWords},
		},
	},
	artifact("ModelArtifact", "kf.ModelArtifact", "model-artifact", uri,
		text("modelFormatName", "model_format_name"), text("modelFormatVersion", "model_format_version"),
		text("storageKey", "storage_key"), text("storagePath", "storage_path"), text("serviceAccountName", "service_account_name"),
		text("modelSourceKind", "model_source_kind"), text("modelSourceClass", "model_source_class"), text("modelSourceGroup", "model_source_group"),
		text("modelSourceId", "model_source_id"), text("modelSourceName", "model_source_name")),
	artifact("DocArtifact", "kf.DocArtifact", "doc-artifact", uri),
	artifact("DataSet", "kf.DataSet", "dataset-artifact", uri,
		text("digest", "digest"), text("sourceType", "source_type"), text("source", "source"), text("schema", "schema"), text("profile", "profile")),
	artifact("Metric", "kf.Metric", "metric",
		Field{Name: "value", Type: Double, Stored: "value", Required: true}, text("timestamp", "timestamp"), Field{Name: "step", Type: Step, Stored: "step"}),
	artifact("Parameter", "kf.Parameter", "parameter",
		text("value", "value"),
		Field{Name: "parameterType", Type: Enum, Stored: "parameter_type", Words: []string{"string", "number", "boolean", "object"}}),
	// What a metric was each time that it was written in a run; clients only read it.
	artifact("MetricHistory", "kf.MetricHistory", "metric",
		Field{Name: "value", Type: Double, Stored: "value"}, text("timestamp", "timestamp"), Field{Name: "step", Type: Step, Stored: "step"}),
}

// ByName finds a kind; nil if there is none.
func ByName(name string) *Kind {
	for _, k := range Kinds {
		if k.Name == name {
			return k
		}
	}
	return nil
}

// Prefixed tells that names are stored with something before a colon: the id of whom the entity belongs to, or what makes
// it unique if it belongs to nobody.
func (k *Kind) Prefixed() bool { return k.Parent != nil || k.Table != Contexts }

// Field finds one of the kind's own fields.
func (k *Kind) Field(name string) (Field, bool) {
	for _, f := range k.Fields {
		if f.Name == name {
			return f, true
		}
	}
	return Field{}, false
}
