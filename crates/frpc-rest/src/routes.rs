//! The routes of an API, from the annotations of its methods.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use frpc_schema::{
    Diagnostic, MethodKind,
    location::{Locations, METHODS_OF_SERVICE, SERVICES_OF_FILE, SourceLocation},
};
use prost::Message;
use prost_types::{FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto};

use crate::{
    annotations::{AnnotatedFiles, AnnotatedMethod, HttpRule},
    comments,
    template::PathTemplate,
    trie::{PathMatch, PathTrie},
    types::{FieldLabel, TypeTable, full_name},
};

/// The REST API of services: the routes in their `google.api.http` annotations.
///
/// ```
/// use frpc_rest::{RestApi, RouteMatch};
///
/// // The encoded descriptors of proto files, such as the constant `FILE_DESCRIPTOR_SET` of generated code.
/// fn find(descriptors: &[u8]) -> Result<(), frpc_schema::Error> {
///     let api = std::sync::Arc::new(RestApi::read([descriptors], |_method| true)?);
///     if let RouteMatch::Found(call) = api.find("GET", "/v1/shelves/7") {
///         println!("{} is called", call.route().method());
///     }
///     Ok(())
/// }
/// # find(&[])?;
/// # Ok::<(), frpc_schema::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RestApi {
    pub(crate) types: TypeTable,
    routes: Vec<RestRoute>,
    /// The comments of services, by their full name.
    pub(crate) services: BTreeMap<String, String>,
    trie: PathTrie,
}

/// An HTTP method and a path template with the method that they call.
#[derive(Clone, Debug)]
pub struct RestRoute {
    pub(crate) method: String,
    pub(crate) kind: MethodKind,
    pub(crate) http_method: String,
    pub(crate) template: PathTemplate,
    pub(crate) input: String,
    pub(crate) output: String,
    /// For each variable of the template, the indices of the fields to its value.
    pub(crate) variables: Vec<Vec<usize>>,
    pub(crate) body: BodyRule,
    /// The index of the field of the response that is its body.
    pub(crate) response_body: Option<usize>,
    pub(crate) docs: String,
    pub(crate) is_deprecated: bool,
    /// The position among the bindings of the method.
    pub(crate) binding: usize,
    place: SourceLocation,
}

/// The part of a request message in the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BodyRule {
    None,
    Whole,
    /// The field at the end of this path.
    Field(Vec<usize>),
}

/// The result of a search for a route.
#[derive(Debug)]
pub enum RouteMatch<'a> {
    /// The call of a request.
    Found(RouteCall),
    /// The path belongs to other HTTP methods. They are sorted.
    OtherMethods(Vec<&'a str>),
    /// No route has this path.
    NotFound,
    /// The path is invalid, for this reason.
    Malformed(&'static str),
}

/// A route with the values in the path of a request.
#[derive(Clone, Debug)]
pub struct RouteCall {
    pub(crate) api: Arc<RestApi>,
    /// The index of the route.
    route: usize,
    /// In the order of the variables.
    pub(crate) values: Vec<String>,
}

impl RouteCall {
    /// Returns the route.
    pub fn route(&self) -> &RestRoute {
        &self.api.routes[self.route]
    }
}

impl RestRoute {
    /// Returns the called method, as `package.Service/Method`.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Returns the streams of the method.
    pub fn kind(&self) -> MethodKind {
        self.kind
    }

    /// Returns `true` if the request has a part in its body.
    pub fn has_body(&self) -> bool {
        self.body != BodyRule::None
    }

    /// Returns the HTTP method. `*` stands for any.
    pub fn http_method(&self) -> &str {
        &self.http_method
    }

    /// Returns the path template.
    pub fn template(&self) -> &PathTemplate {
        &self.template
    }
}

impl RestApi {
    /// Reads the annotations of services in encoded descriptor sets, each a `google.protobuf.FileDescriptorSet`.
    /// `is_served` selects methods by their path, such as `package.Service/Method`.
    ///
    /// Files with the same name are read once.
    ///
    /// # Errors
    ///
    /// All mistakes in annotations, including routes that collide.
    pub fn read<'a>(
        sets: impl IntoIterator<Item = &'a [u8]>,
        is_served: impl Fn(&str) -> bool,
    ) -> Result<Self, frpc_schema::Error> {
        let mut reader = RouteReader { api: Self::default(), mistakes: Vec::new(), is_served: &is_served };
        let mut files = HashSet::new();
        for set in sets {
            let decoded = FileDescriptorSet::decode(set).and_then(|set_| Ok((set_, AnnotatedFiles::decode(set)?)));
            let (described, annotated) = decoded.map_err(|error| {
                frpc_schema::Error::from(Diagnostic::new(format!("the descriptors cannot be read: {error}")))
            })?;
            let mut fresh = Vec::new();
            for (file, annotated) in described.file.iter().zip(&annotated.file) {
                if files.insert(file.name().to_owned()) {
                    reader.api.types.add_file(file);
                    fresh.push((file, annotated));
                }
            }
            // The types of all files come first, because a file may import a later one.
            for (file, annotated) in fresh {
                reader.file(file, annotated);
            }
        }
        if reader.mistakes.is_empty() { Ok(reader.api) } else { Err(mistakes(reader.mistakes)) }
    }

    /// Returns all routes, in the order of the files.
    pub fn routes(&self) -> &[RestRoute] {
        &self.routes
    }

    /// Finds the route of a request. `path` is the path of the URL, still encoded.
    ///
    /// If several templates match, the most specific one counts: from left to right, a literal comes before `*`, and
    /// `*` before `**`, and more segments after `**` come first. A template with a verb comes first of all. A `HEAD` request uses the routes of `GET` if it has none.
    pub fn find<'a>(self: &'a Arc<Self>, http_method: &str, path: &str) -> RouteMatch<'a> {
        match self.trie.find(http_method, path) {
            PathMatch::Found { route, segments } => {
                let template = &self.routes[route].template;
                let values = template.variables.iter().map(|variable| segments.value(variable, template));
                match values.collect::<Option<_>>() {
                    Some(values) => RouteMatch::Found(RouteCall { api: self.clone(), route, values }),
                    None => RouteMatch::Malformed("a path variable is not UTF-8"),
                }
            }
            PathMatch::OtherMethods(methods) => RouteMatch::OtherMethods(methods),
            PathMatch::NotFound => RouteMatch::NotFound,
            PathMatch::Malformed(reason) => RouteMatch::Malformed(reason),
        }
    }
}

fn mistakes(diagnostics: Vec<Diagnostic>) -> frpc_schema::Error {
    let mut diagnostics = diagnostics.into_iter();
    let mut error = frpc_schema::Error::from(diagnostics.next().unwrap_or_else(|| Diagnostic::new("no mistake")));
    error.diagnostics.extend(diagnostics);
    error
}

struct RouteReader<'a> {
    api: RestApi,
    mistakes: Vec<Diagnostic>,
    is_served: &'a dyn Fn(&str) -> bool,
}

/// A method with an annotation.
struct MethodSource<'a> {
    path: String,
    declared: &'a MethodDescriptorProto,
    docs: String,
    place: SourceLocation,
}

impl RouteReader<'_> {
    fn file(&mut self, file: &FileDescriptorProto, annotated: &crate::annotations::AnnotatedFile) {
        let locations = Locations::new(file);
        for (service_at, (service, annotations)) in (0..).zip(file.service.iter().zip(&annotated.service)) {
            let service_name = full_name(file.package(), service.name());
            let docs = comments::text(&locations.comment(&[SERVICES_OF_FILE, service_at]));
            self.api.services.insert(service_name.clone(), docs);
            for (method_at, (declared, annotation)) in (0..).zip(service.method.iter().zip(&annotations.method)) {
                let path = format!("{service_name}/{}", declared.name());
                let AnnotatedMethod { options: Some(options) } = annotation else { continue };
                let Some(rule) = options.http.as_ref().filter(|_| (self.is_served)(&path)) else { continue };
                let at = [SERVICES_OF_FILE, service_at, METHODS_OF_SERVICE, method_at];
                let option = [&at[..], &[OPTIONS_OF_METHOD, HTTP_OPTION]].concat();
                let option = locations.place(&option);
                let place = if option.span.is_some() { option } else { locations.place(&at) };
                let docs = comments::text(&locations.comment(&at));
                self.method(&MethodSource { path, declared, docs, place }, rule);
            }
        }
    }

    fn method(&mut self, source: &MethodSource<'_>, rule: &HttpRule) {
        for (binding, rule) in std::iter::once(rule).chain(&rule.additional_bindings).enumerate() {
            let is_nested = binding > 0 && !rule.additional_bindings.is_empty();
            let route = if is_nested {
                Err("an additional binding cannot have additional bindings".to_owned())
            } else {
                self.route(source, rule, binding)
            };
            match route {
                Ok(route) => self.add(route),
                Err(why) => {
                    let mistake = Diagnostic::new(format!("the HTTP rule of {} is invalid: {why}", source.path));
                    self.mistakes.push(mistake.at(source.place.clone()));
                }
            }
        }
    }

    fn route(&self, source: &MethodSource<'_>, rule: &HttpRule, binding: usize) -> Result<RestRoute, String> {
        let pattern = rule.pattern.as_ref().ok_or("it has no HTTP method with a path")?;
        let (http_method, path) = pattern.parts();
        let is_method = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase());
        if http_method != "*" && !is_method(http_method) {
            return Err(format!(
                "`{http_method}` is not the name of an HTTP method: use capital letters, or `*` for any"
            ));
        }
        let template = PathTemplate::parse(path).map_err(|error| format!("the path `{path}`: {error}"))?;
        let MethodSource { declared, .. } = source;
        let [input, output] =
            [declared.input_type(), declared.output_type()].map(|name| name.trim_start_matches('.').to_owned());
        let types = &self.api.types;
        let mut variables = Vec::new();
        for field in template.fields() {
            let (indices, last) = types.field_path(&input, field).map_err(|why| format!("the path `{path}`: {why}"))?;
            if !last.has_text_form() {
                return Err(format!("the path `{path}`: the field `{field}` cannot be written as a single text"));
            }
            variables.push(indices);
        }
        let body = match &*rule.body {
            // Each message of a stream is in the body.
            "" if declared.client_streaming() => BodyRule::Whole,
            "" => BodyRule::None,
            "*" => BodyRule::Whole,
            name => {
                let found = types.field_path(&input, name).map_err(|why| format!("`body` names `{name}`: {why}"))?;
                BodyRule::Field(found.0)
            }
        };
        let response_body = match &*rule.response_body {
            "" | "*" => None,
            name => {
                let found = types.message(&output).and_then(|message| message.index_of(name));
                Some(found.ok_or_else(|| format!("`response_body` names `{name}`: {output} has no field `{name}`"))?)
            }
        };
        Ok(RestRoute {
            method: source.path.clone(),
            kind: match (declared.client_streaming(), declared.server_streaming()) {
                (false, false) => MethodKind::Unary,
                (false, true) => MethodKind::ServerStreaming,
                (true, false) => MethodKind::ClientStreaming,
                (true, true) => MethodKind::Bidirectional,
            },
            http_method: http_method.to_owned(),
            template,
            input,
            output,
            variables,
            body,
            response_body,
            docs: source.docs.clone(),
            is_deprecated: declared.options.as_ref().is_some_and(|options| options.deprecated()),
            binding,
            place: source.place.clone(),
        })
    }

    fn add(&mut self, route: RestRoute) {
        let index = self.api.routes.len();
        if let Err(other) = self.api.trie.insert(&route.http_method, &route.template, index) {
            let other = &self.api.routes[other];
            let mistake = Diagnostic::new(format!(
                "{} and {} have the same HTTP method and path: {} `{}` and `{}`",
                other.method,
                route.method,
                route.http_method,
                other.template.as_str(),
                route.template.as_str(),
            ));
            let mistake = mistake.at(route.place.clone()).labelled(other.place.clone(), "the other one");
            self.mistakes.push(mistake.help("change one of the paths, or serve the methods on different servers"));
            return;
        }
        self.api.routes.push(route);
    }
}

/// Path element from a method to its options.
const OPTIONS_OF_METHOD: i32 = 4;

/// The number of the extension `google.api.http`.
const HTTP_OPTION: i32 = 72_295_728;

impl BodyRule {
    /// Returns `true` if parameters of the query are fields of the message.
    pub(crate) fn has_query(&self) -> bool {
        *self != Self::Whole
    }
}

impl FieldLabel {
    pub(crate) fn is_one(self) -> bool {
        self == Self::One
    }
}
