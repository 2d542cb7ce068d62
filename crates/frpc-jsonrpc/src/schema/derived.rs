//! Building blocks of derived schemas.

use std::{any::type_name, cell::RefCell};

use serde_json::{Map, Value, json};

thread_local! {
    /// The types being described on this thread.
    static AROUND: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

/// Describes a type. In a recursive type, an inner occurrence is described by its name only.
pub fn once<T: ?Sized>(name: &str, describe: impl FnOnce() -> Value) -> Value {
    struct RecursionGuard;

    impl Drop for RecursionGuard {
        fn drop(&mut self) {
            AROUND.with_borrow_mut(|around| around.pop());
        }
    }

    let unique = type_name::<T>();
    if AROUND.with_borrow(|around| around.contains(&unique)) {
        return json!({"description": format!("a nested `{name}`, described by the enclosing schema")});
    }
    AROUND.with_borrow_mut(|around| around.push(unique));
    let _inside = RecursionGuard;
    describe()
}

/// Sets the description of a schema, replacing any existing one.
pub fn with_docs(schema: Value, docs: &str) -> Value {
    if docs.is_empty() {
        return schema;
    }
    let mut schema = match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    schema.insert("description".to_owned(), docs.into());
    Value::Object(schema)
}

/// Returns the schema of any value.
pub fn anything() -> Value {
    Value::Bool(true)
}

/// Returns the schema of `null`.
pub fn null() -> Value {
    json!({"type": "null"})
}

/// Returns the schema of a constant string.
pub fn constant(text: &str) -> Value {
    json!({"type": "string", "const": text})
}

/// Returns the schema of an array with these items. Only the first `required` ones are required.
pub fn tuple(items: Vec<Value>, required: usize) -> Value {
    let mut schema = json!({"type": "array", "minItems": required, "maxItems": items.len()});
    if !items.is_empty() {
        schema["prefixItems"] = items.into();
    }
    schema
}

/// Returns the schema of a value that matches any of `schemas`.
pub fn any_of(mut schemas: Vec<Value>) -> Value {
    let bare: Option<Vec<&Value>> = schemas
        .iter()
        .map(|schema| schema.get("const").filter(|_| schema.as_object().is_some_and(|schema| schema.len() == 2)))
        .collect();
    match bare {
        Some(names) if !names.is_empty() => json!({"type": "string", "enum": names}),
        _ if schemas.len() == 1 => schemas.remove(0),
        _ if schemas.is_empty() => Value::Bool(false),
        _ => json!({"anyOf": schemas}),
    }
}

/// A builder for the schema of an object.
#[derive(Debug, Default)]
pub struct Object {
    properties: Map<String, Value>,
    required: Vec<Value>,
    /// The schema of all other members. Without it, any value is accepted.
    others: Option<Value>,
    all_of: Vec<Value>,
}

impl Object {
    /// Creates a schema without members.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a member.
    pub fn property(mut self, name: &str, schema: Value, is_required: bool) -> Self {
        if is_required {
            self.required.push(name.into());
        }
        self.properties.insert(name.to_owned(), schema);
        self
    }

    /// Adds the members of another object, as for `#[serde(flatten)]`.
    pub fn flat(mut self, schema: Value) -> Self {
        match schema {
            Value::Object(mut schema) if schema.get("type").is_some_and(|of| of == "object") => {
                if let Some(Value::Object(properties)) = schema.remove("properties") {
                    self.properties.extend(properties);
                }
                if let Some(Value::Array(required)) = schema.remove("required") {
                    self.required.extend(required);
                }
                if let Some(Value::Array(all_of)) = schema.remove("allOf") {
                    self.all_of.extend(all_of);
                }
                // Other members remain possible, even if the flattened object is closed.
                let others = schema.remove("additionalProperties").filter(|others| *others != false);
                self.others = others.or(self.others);
            }
            // A flattened `Option` may be absent as a whole, so its schema cannot be required.
            Value::Object(schema) if !is_nullable(&schema) => self.all_of.push(Value::Object(schema)),
            _ => {}
        }
        self
    }

    /// Forbids other members.
    pub fn closed(mut self) -> Self {
        self.others = Some(Value::Bool(false));
        self
    }

    /// Returns the finished schema.
    pub fn into_schema(self) -> Value {
        let Self { properties, required, others, all_of } = self;
        let mut schema = Map::new();
        schema.insert("type".to_owned(), "object".into());
        schema.insert("properties".to_owned(), Value::Object(properties));
        if !required.is_empty() {
            schema.insert("required".to_owned(), Value::Array(required));
        }
        if let Some(others) = others {
            schema.insert("additionalProperties".to_owned(), others);
        }
        if !all_of.is_empty() {
            schema.insert("allOf".to_owned(), Value::Array(all_of));
        }
        Value::Object(schema)
    }
}

fn is_nullable(schema: &Map<String, Value>) -> bool {
    let any_of = schema.get("anyOf").and_then(Value::as_array);
    any_of.is_some_and(|any_of| any_of.contains(&null()))
}
