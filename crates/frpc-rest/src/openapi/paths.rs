//! Paths of templates as in OpenAPI, where each parameter is one segment.

use crate::template::{PathTemplate, TemplateSegment};

/// A path with names for its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenPath {
    /// Such as `/v1/shelves/{shelvesId}:archive`.
    pub(super) text: String,
    pub(super) parameters: Vec<PathParameter>,
}

/// A parameter of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathParameter {
    pub(super) name: String,
    /// The index of the variable whose value is this segment.
    pub(super) variable: Option<usize>,
    /// `true` for `**`.
    pub(super) is_rest: bool,
}

impl OpenPath {
    pub(super) fn of(template: &PathTemplate) -> Self {
        let mut path = Self { text: String::new(), parameters: Vec::new() };
        for (index, segment) in template.segments.iter().enumerate() {
            path.text.push('/');
            let TemplateSegment::Literal(literal) = segment else {
                path.add(template, index, *segment == TemplateSegment::Rest);
                continue;
            };
            path.text.push_str(&literal.replace(['{', '}'], "_"));
        }
        if template.segments.is_empty() {
            path.text.push('/');
        }
        if let Some(verb) = template.verb() {
            path.text.push(':');
            path.text.push_str(verb);
        }
        path
    }

    fn add(&mut self, template: &PathTemplate, index: usize, is_rest: bool) {
        let variables = &template.variables;
        let around = variables.iter().position(|variable| variable.segments.contains(&index));
        let whole = around.filter(|variable| variables[*variable].segments.len() == 1);
        let before = index.checked_sub(1).and_then(|before| match &template.segments[before] {
            TemplateSegment::Literal(literal) => Some(literal.as_str()),
            _ => None,
        });
        let name = match (whole, before) {
            (Some(variable), _) => variables[variable].field.clone(),
            (None, Some(literal)) => format!("{}Id", literal.replace(|letter: char| !letter.is_alphanumeric(), "_")),
            (None, None) => format!("segment{}", index + 1),
        };
        let is_taken = |name: &str| self.parameters.iter().any(|other| other.name == name);
        let mut free = name.clone();
        let mut number = 2;
        while is_taken(&free) {
            free = format!("{name}{number}");
            number += 1;
        }
        self.text += &format!("{{{free}}}");
        self.parameters.push(PathParameter { name: free, variable: whole, is_rest });
    }

    /// Uses the names of the parameters of another path with the same shape.
    pub(super) fn named_like(mut self, other: &Self) -> Self {
        for (own, other) in self.parameters.iter_mut().zip(&other.parameters) {
            own.name.clone_from(&other.name);
        }
        Self { text: other.text.clone(), ..self }
    }
}
