//! The description of an API as an OpenAPI document.

mod json;
mod paths;
mod schemas;

use std::collections::{BTreeMap, BTreeSet};

use self::{
    json::{JsonObject, JsonValue},
    paths::OpenPath,
    schemas::SchemaSet,
};
use frpc_schema::MethodKind;

use crate::{
    routes::{BodyRule, RestApi, RestRoute},
    types::{FieldInfo, FieldLabel, MessageInfo, WellKnown},
};

/// The title and the version of an [OpenAPI document](RestApi::open_api).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenApiInfo {
    title: String,
    version: String,
}

impl OpenApiInfo {
    /// Creates the information of a document. An empty title stands for the names of the services, and an empty version
    /// for `1.0.0`.
    pub fn new(title: impl Into<String>, version: impl Into<String>) -> Self {
        Self { title: title.into(), version: version.into() }
    }
}

impl RestApi {
    /// Returns the description of the API: an OpenAPI 3.1 document in JSON. The same proto files give the same text.
    ///
    /// Comments become descriptions, if the descriptors have source information. Methods with a stream of requests and
    /// HTTP methods unknown to OpenAPI are left out.
    pub fn open_api(&self, info: &OpenApiInfo) -> String {
        let mut document = DocumentWriter {
            api: self,
            schemas: SchemaSet::new(&self.types),
            paths: BTreeMap::new(),
            by_shape: BTreeMap::new(),
            operations: BTreeSet::new(),
        };
        let routes =
            self.routes().iter().filter(|route| matches!(route.kind, MethodKind::Unary | MethodKind::ServerStreaming));
        let routes: Vec<_> = routes.filter(|route| METHODS.contains(&&*route.http_method)).collect();
        routes.iter().for_each(|route| document.add(route));
        let services: BTreeSet<_> = routes.iter().map(|route| service(route)).collect();
        let title = match &*info.title {
            "" => services.iter().map(|name| name.rsplit('.').next().unwrap_or(name)).collect::<Vec<_>>().join(", "),
            title => title.to_owned(),
        };
        let version = if info.version.is_empty() { "1.0.0" } else { &info.version };
        let tags = services.iter().map(|name| {
            let docs = self.services.get(*name).map_or("", String::as_str);
            JsonObject::of("name", *name).with_text("description", docs)
        });
        let mut paths = JsonObject::new();
        for (path, operations) in document.paths {
            paths.put(&path, operations);
        }
        let mut text =
            JsonObject::of("openapi", "3.1.0").with("info", JsonObject::of("title", title).with("version", version));
        text.put("tags", tags.collect::<JsonValue>());
        text.put("paths", paths);
        text.put("components", JsonObject::of("schemas", document.schemas.finish()));
        text.to_text()
    }
}

fn service(route: &RestRoute) -> &str {
    route.method.split('/').next().unwrap_or_default()
}

/// The parts of a document written so far.
struct DocumentWriter<'a> {
    api: &'a RestApi,
    schemas: SchemaSet<'a>,
    /// The operations of each path.
    paths: BTreeMap<String, JsonObject>,
    /// First path for each template, with the names of its parameters removed. Paths that differ in the names of parameters only are the same for OpenAPI.
    by_shape: BTreeMap<String, OpenPath>,
    operations: BTreeSet<String>,
}

impl DocumentWriter<'_> {
    fn add(&mut self, route: &RestRoute) {
        let path = OpenPath::of(&route.template);
        let parts = path.text.split(['{', '}']).enumerate();
        let shape: String = parts.map(|(index, part)| if index % 2 == 0 { part } else { "{}" }).collect();
        let first = self.by_shape.entry(shape).or_insert_with(|| path.clone()).clone();
        let path = path.named_like(&first);
        let operation = self.operation(route, &path);
        let operations = self.paths.entry(path.text).or_default();
        // A `*` and a `**` at the same place are one path for OpenAPI.
        if !operations.has(&route.http_method.to_lowercase()) {
            operations.put(&route.http_method.to_lowercase(), operation);
        }
    }

    fn operation(&mut self, route: &RestRoute, path: &OpenPath) -> JsonObject {
        let (summary, description) = route.docs.split_once("\n\n").unwrap_or((&route.docs, ""));
        let mut operation = JsonObject::of("tags", [service(route)].into_iter().collect::<JsonValue>())
            .with_text("summary", &summary.replace('\n', " "))
            .with_text("description", description.trim())
            .with("operationId", self.operation_id(route))
            .with_deprecated(route.is_deprecated);
        let mut parameters = self.path_parameters(route, path);
        if let Some(message) = self.api.types.message(&route.input).filter(|_| route.body.has_query()) {
            let mut query =
                QueryFields { route, names: Vec::new(), indices: Vec::new(), within: Vec::new(), found: Vec::new() };
            query.add(self.api, message);
            for (name, field) in query.found {
                let schema = self.schemas.of_field(field);
                let mut parameter = JsonObject::of("name", name).with("in", "query");
                if matches!(field.shape, FieldLabel::Map(_)) {
                    parameter.put("style", "deepObject");
                }
                let parameter = parameter.with_text("description", &field.docs).with_deprecated(field.is_deprecated);
                parameters.push(parameter.with("schema", schema));
            }
        }
        if !parameters.is_empty() {
            operation.put("parameters", parameters.into_iter().collect::<JsonValue>());
        }
        if let Some(body) = self.request_body(route) {
            operation.put("requestBody", body);
        }
        let responses = self.responses(route);
        operation.with("responses", responses)
    }

    fn operation_id(&mut self, route: &RestRoute) -> String {
        let (service, method) = route.method.split_once('/').unwrap_or((&route.method, ""));
        let short = service.rsplit('.').next().unwrap_or(service);
        let binding = if route.binding == 0 { String::new() } else { (route.binding + 1).to_string() };
        let id = format!("{short}_{method}{binding}");
        // Services of several packages may have the same name.
        let id = if self.operations.contains(&id) { format!("{}_{id}", service.replace('.', "_")) } else { id };
        self.operations.insert(id.clone());
        id
    }

    fn path_parameters(&mut self, route: &RestRoute, path: &OpenPath) -> Vec<JsonObject> {
        let mut written = Vec::new();
        for parameter in &path.parameters {
            let field = parameter.variable.and_then(|variable| {
                self.api.types.field_path(&route.input, &route.template.variables[variable].field).ok()
            });
            let (schema, docs) = match field {
                Some((_, field)) => (self.schemas.of_field(field), field.docs.clone()),
                None => (JsonObject::of("type", "string"), String::new()),
            };
            let rest = if parameter.is_rest { "May contain slashes." } else { "" };
            let docs = [&*docs, rest].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n");
            let written_one = JsonObject::of("name", &*parameter.name).with("in", "path").with("required", true);
            written.push(written_one.with_text("description", &docs).with("schema", schema));
        }
        written
    }

    fn request_body(&mut self, route: &RestRoute) -> Option<JsonObject> {
        let (name, schema, docs) = match &route.body {
            BodyRule::None => return None,
            BodyRule::Whole => (Some(&*route.input), self.schemas.of_message(&route.input), ""),
            BodyRule::Field(path) => {
                let field = self.api.types.field_at(&route.input, path)?;
                (field.message(), self.schemas.of_field(field), &*field.docs)
            }
        };
        let content = content(name, schema);
        Some(JsonObject::new().with_text("description", docs).with("required", true).with("content", content))
    }

    fn responses(&mut self, route: &RestRoute) -> JsonObject {
        let field = route.response_body.and_then(|index| Some(&self.api.types.message(&route.output)?.fields[index]));
        let (name, schema) = match field {
            Some(field) => (field.message(), self.schemas.of_field(field)),
            None => (Some(&*route.output), self.schemas.of_message(&route.output)),
        };
        let is_http_body = name.and_then(WellKnown::of) == Some(WellKnown::HttpBody);
        let error = self.schemas.error();
        let (docs, content) = if route.kind == MethodKind::ServerStreaming && !is_http_body {
            let result = JsonObject::of("result", schema.clone()).with("error", error.clone());
            let line = JsonObject::of("type", "object").with("properties", result);
            let lines = JsonObject::of("application/x-ndjson", JsonObject::of("schema", line))
                .with("text/event-stream", JsonObject::of("schema", schema));
            ("A stream of messages: JSON lines or server-sent events.", lines)
        } else {
            ("A successful response.", content(name, schema))
        };
        let error = JsonObject::of("application/json", JsonObject::of("schema", error));
        JsonObject::of("200", JsonObject::of("description", docs).with("content", content))
            .with("default", JsonObject::of("description", "An error.").with("content", error))
    }
}

/// Returns the content of a body with a message of this name.
fn content(message: Option<&str>, schema: JsonObject) -> JsonObject {
    match message.and_then(WellKnown::of) {
        Some(WellKnown::HttpBody) => JsonObject::of("*/*", JsonObject::new()),
        _ => JsonObject::of("application/json", JsonObject::of("schema", schema)),
    }
}

/// The fields of a message that are parameters of the query.
struct QueryFields<'a> {
    route: &'a RestRoute,
    /// Path of fields from the request message to the current field.
    names: Vec<&'a str>,
    indices: Vec<usize>,
    /// The names of the messages around the current one.
    within: Vec<&'a str>,
    found: Vec<(String, &'a FieldInfo)>,
}

impl<'a> QueryFields<'a> {
    fn add(&mut self, api: &'a RestApi, message: &'a MessageInfo) {
        self.within.push(&message.name);
        for (index, field) in message.fields.iter().enumerate() {
            self.indices.push(index);
            self.names.push(&field.json_name);
            let is_elsewhere = self.route.variables.contains(&self.indices)
                || matches!(&self.route.body, BodyRule::Field(path) if *path == self.indices);
            let inner = field.message().filter(|name| field.shape.is_one() && WellKnown::of(name).is_none());
            let is_map = matches!(field.shape, FieldLabel::Map(_));
            if is_elsewhere || self.found.len() >= PARAMETERS_MAX {
            } else if field.has_text_form()
                || is_map && !matches!(field.message(), Some(name) if WellKnown::of(name).is_none())
            {
                self.found.push((self.names.join("."), field));
            } else if let Some(inner) = inner.filter(|name| !self.within.contains(name))
                && let Some(inner) = api.types.message(inner)
            {
                self.add(api, inner);
            }
            self.indices.pop();
            self.names.pop();
        }
        self.within.pop();
    }
}

/// The maximum number of parameters of the query in the description of an operation.
const PARAMETERS_MAX: usize = 500;

/// The HTTP methods in OpenAPI 3.1.
const METHODS: [&str; 8] = ["GET", "PUT", "POST", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE"];
