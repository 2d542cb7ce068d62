//! Derived schemas, compared with the serde implementations of the same types.

mod validator;

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use frpc_jsonrpc::{Function, Functions, Schema, function};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use self::validator::is_valid;

/// Checks that values written by serde match the schema, and that schema and serde accept and refuse the same texts.
#[track_caller]
fn check<T: Schema + Serialize + DeserializeOwned>(
    values: impl IntoIterator<Item = T>,
    right: &[&str],
    wrong: &[&str],
) {
    let schema = T::schema();
    for value in values {
        let value = serde_json::to_value(value).unwrap();
        assert!(is_valid(&schema, &value), "{value} by {schema}");
    }
    for (texts, is_right) in [(right, true), (wrong, false)] {
        for text in texts {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::from_str::<T>(text).is_ok(), is_right, "{text}");
            assert_eq!(is_valid(&schema, &value), is_right, "{text} by {schema}");
        }
    }
}

/// A place
/// on earth.
#[derive(Deserialize, Serialize, Schema)]
#[serde(rename_all = "camelCase")]
struct Place {
    /// In degrees.
    latitude_north: f64,
    #[serde(rename = "lon")]
    longitude: f32,
    display_name: Option<String>,
    #[serde(default)]
    r#type: Kind,
    #[serde(skip)]
    _seen: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
}

#[derive(Default, Deserialize, Serialize, Schema)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    #[default]
    BigCity,
    #[serde(rename = "hamlet")]
    Village,
    #[serde(skip)]
    _Lost,
}

fn place() -> Place {
    Place { latitude_north: 52.5, longitude: 13.4, display_name: None, r#type: Kind::Village, _seen: 1, tags: vec![] }
}

#[test]
fn a_struct_is_an_object_with_documented_fields() {
    let expected = json!({
        "type": "object",
        "description": "A place\non earth.",
        "properties": {
            "latitudeNorth": {"type": "number", "format": "double", "description": "In degrees."},
            "lon": {"type": "number", "format": "float"},
            "displayName": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "type": {"type": "string", "enum": ["big-city", "hamlet"]},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["latitudeNorth", "lon"],
    });
    assert_eq!(Place::schema(), expected);
    check(
        [place(), Place { display_name: Some("x".into()), tags: vec!["y".into()], ..place() }],
        &[r#"{"latitudeNorth":1,"lon":2}"#, r#"{"latitudeNorth":1,"lon":2,"type":"big-city","other":[]}"#],
        &[
            r#"{"latitudeNorth":1}"#,
            r#"{"latitudeNorth":"1","lon":2}"#,
            r#"{"latitudeNorth":1,"lon":2,"type":"_Lost"}"#,
            "null",
        ],
    );
}

#[derive(Deserialize, Serialize, Schema)]
struct Meters(f64);

#[derive(Deserialize, Serialize, Schema)]
struct Pair(i64, #[serde(default)] String);

#[derive(Deserialize, Serialize, Schema)]
struct Nothing;

#[derive(Deserialize, Serialize, Schema)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    size: u8,
    name: Cow<'static, str>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { size: 1, name: "".into() }
    }
}

#[derive(Deserialize, Serialize, Schema)]
#[serde(transparent)]
struct Wrapped {
    #[serde(skip)]
    _mark: (),
    inner: Settings,
}

#[derive(Deserialize, Serialize, Schema)]
#[serde(tag = "kind", rename = "named")]
struct Tagged {
    a: bool,
}

#[test]
fn other_structs_are_lists_single_values_and_null() {
    check([Meters(1.5)], &["2"], &["[2]", "\"2\""]);
    check([Pair(1, "a".into())], &["[1]", "[1,\"b\"]"], &["[]", "[1,2]", "[1,\"b\",3]", "1"]);
    check([Nothing], &["null"], &["0", "\"Nothing\""]);
    check([Settings::default()], &["{}", r#"{"size":255}"#], &[r#"{"size":256}"#, r#"{"other":1}"#]);
    check([Wrapped { _mark: (), inner: Settings::default() }], &["{}"], &[r#"{"inner":{}}"#]);
    check([Tagged { a: true }], &[r#"{"a":true}"#, r#"{"kind":"named","a":true}"#], &[r#"{"kind":"named"}"#]);
}

#[derive(Deserialize, Serialize, Schema)]
#[serde(rename_all = "snake_case", rename_all_fields = "UPPERCASE")]
enum Shape {
    /// Nothing.
    Empty,
    Circle(f64),
    Line(f64, f64),
    #[serde(rename_all = "camelCase")]
    RightAngle {
        /// Below.
        side_a: f64,
        side_b: Option<f64>,
    },
    Box {
        side: f64,
    },
}

#[derive(Deserialize, Serialize, Schema)]
#[serde(tag = "type")]
enum Event {
    Started,
    Placed(Place),
    Moved { by: Pair },
}

#[derive(Deserialize, Serialize, Schema)]
#[serde(tag = "t", content = "c")]
enum Adjacent {
    Unit,
    One(u8),
    Two(u8, u8),
    Named { a: u8 },
    Maybe(Option<u8>),
}

#[derive(Deserialize, Serialize, Schema)]
#[serde(untagged)]
enum Either {
    Number(i64),
    Text(String),
    Both { number: i64, text: String },
    Neither,
}

#[derive(Deserialize, Serialize, Schema)]
enum Only {
    #[serde(rename = "this")]
    One(u8),
}

#[test]
fn enums_follow_their_serde_tag() {
    let shapes = [
        Shape::Empty,
        Shape::Circle(1.0),
        Shape::Line(1.0, 2.0),
        Shape::RightAngle { side_a: 1.0, side_b: None },
        Shape::Box { side: 1.0 },
    ];
    check(
        shapes,
        &["\"empty\"", r#"{"circle":1}"#, r#"{"right_angle":{"sideA":1}}"#, r#"{"box":{"SIDE":1}}"#],
        &["\"circle\"", "\"Empty\"", r#"{"circle":[1]}"#, r#"{"line":[1]}"#, r#"{"right_angle":{"SIDE_A":1}}"#, "{}"],
    );
    let schema = Shape::schema();
    assert_eq!(schema["anyOf"][0], json!({"type": "string", "const": "empty", "description": "Nothing."}));
    assert_eq!(schema["anyOf"][3]["properties"]["right_angle"]["properties"]["sideA"]["description"], "Below.");
    check(
        [Event::Started, Event::Placed(place()), Event::Moved { by: Pair(1, "b".into()) }],
        &[r#"{"type":"Started"}"#, r#"{"type":"Moved","by":[1]}"#],
        &["\"Started\"", r#"{"type":"Moved"}"#, r#"{"type":"Other"}"#, r#"{"by":[1]}"#],
    );
    check(
        [Adjacent::Unit, Adjacent::One(1), Adjacent::Two(1, 2), Adjacent::Named { a: 1 }],
        &[r#"{"t":"Unit"}"#, r#"{"t":"One","c":1}"#, r#"{"c":{"a":1},"t":"Named"}"#, r#"{"t":"Maybe"}"#],
        &[r#"{"t":"One"}"#, r#"{"t":"Two","c":[1]}"#, r#"{"One":1}"#, r#"{"t":"Named","c":{}}"#],
    );
    check(
        [Either::Number(1), Either::Text("a".into()), Either::Both { number: 1, text: "b".into() }, Either::Neither],
        &["5", "null", r#"{"number":1,"text":""}"#],
        &["1.5", "[]", r#"{"number":1}"#],
    );
    check([Only::One(1)], &[r#"{"this":2}"#], &[r#"{"One":2}"#, "\"this\"", "2"]);
}

#[derive(Deserialize, Serialize, Schema)]
struct Page {
    number: u32,
    #[serde(flatten)]
    settings: Meta,
    #[serde(flatten)]
    shape: Option<Only>,
    #[serde(flatten)]
    event: Event,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Deserialize, Serialize, Schema)]
struct Meta {
    author: String,
}

#[derive(Deserialize, Serialize, Schema)]
struct Counts {
    total: String,
    #[serde(flatten)]
    each: BTreeMap<String, u64>,
}

#[test]
fn flattened_fields_join_the_others() {
    let page = |shape| Page {
        number: 1,
        settings: Meta { author: "a".into() },
        shape,
        event: Event::Started,
        rest: BTreeMap::from([("more".to_owned(), json!([1]))]),
    };
    check(
        [page(None), page(Some(Only::One(1)))],
        &[r#"{"number":1,"author":"a","type":"Started"}"#],
        &[r#"{"number":1,"author":"a"}"#, r#"{"number":1,"type":"Started"}"#, r#"{"author":"a","type":"Started"}"#],
    );
    check(
        [Counts { total: "many".into(), each: BTreeMap::from([("a".to_owned(), 1)]) }],
        &[r#"{"total":"1"}"#, r#"{"total":"1","b":2}"#],
        &[r#"{"total":"1","b":"2"}"#, "{}"],
    );
}

#[derive(Deserialize, Serialize, Schema)]
struct Tree {
    value: i32,
    children: Vec<Tree>,
    twin: Option<Box<Twin<Tree>>>,
}

#[derive(Deserialize, Serialize, Schema)]
struct Twin<T> {
    one: T,
    other: Vec<T>,
}

#[derive(Deserialize, Serialize, Schema)]
struct Timed {
    #[serde(with = "seconds")]
    lasts: Duration,
    unknown: Unknown,
}

#[derive(Deserialize, Serialize)]
struct Unknown(u8);

mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{}s", time.as_secs()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.trim_end_matches('s').parse().map(Duration::from_secs).map_err(serde::de::Error::custom)
    }
}

#[derive(Schema)]
#[allow(dead_code, reason = "it is only described")]
struct Lent<'a, T: ?Sized, const N: usize> {
    text: &'a str,
    value: &'a T,
    some: [u8; N],
}

#[test]
fn recursive_types_are_described_once() {
    let leaf = || Tree { value: 1, children: vec![], twin: None };
    let tree =
        Tree { children: vec![leaf()], twin: Some(Box::new(Twin { one: leaf(), other: vec![leaf()] })), ..leaf() };
    check([leaf(), tree], &[r#"{"value":1,"children":[]}"#], &[r#"{"value":1}"#, r#"{"value":1,"children":1}"#]);
    let schema = Tree::schema();
    assert_eq!(
        schema["properties"]["children"]["items"],
        json!({"description": "a nested `Tree`, described by the enclosing schema"})
    );
    assert_eq!(Vec::<Tree>::schema()["items"], schema, "it is forgotten when it is done");
    assert_eq!(Twin::<Meters>::schema()["properties"]["other"]["items"]["format"], "double");
}

#[test]
fn unknown_types_accept_any_value() {
    check([Timed { lasts: Duration::from_secs(5), unknown: Unknown(1) }], &[r#"{"lasts":"7s","unknown":1}"#], &["{}"]);
    assert_eq!(Timed::schema()["properties"], json!({"lasts": true, "unknown": true}));
    let schema = Lent::<str, 3>::schema();
    assert_eq!(schema["properties"]["value"], json!({"type": "string"}));
    assert_eq!(schema["properties"]["some"]["maxItems"], 3);
}

#[function]
fn place_of(shapes: Vec<Shape>, kind: Option<Kind>) -> Result<Place, frpc::Status> {
    let _ = (shapes, kind);
    Ok(place())
}

#[test]
fn functions_are_described_with_derived_schemas() {
    let description = place_of.description();
    assert_eq!(description.parameters()[0].schema()["items"], Shape::schema());
    assert_eq!(*description.result(), Place::schema());
    let document = Functions::new().function(place_of).openrpc().to_string();
    assert!(document.contains("In degrees.") && document.contains("big-city"), "{document}");
}
