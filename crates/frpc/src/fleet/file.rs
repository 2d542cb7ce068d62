//! Endpoints from a file.

use std::{borrow::Cow, fs::File, io, io::Read, path::PathBuf, time::Duration};

use frpc_json::{Scanner, SyntaxError};
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::{task::spawn_blocking, time::sleep};

use super::resolve::{Endpoint, Endpoints, Refresh, Resolve};

/// Reads a file, and reads it again to find changes.
#[derive(Clone, Debug)]
pub(super) struct FileResolver {
    path: PathBuf,
}

/// The last content of the file, or the text of the error.
type FileContent = Result<String, String>;

impl FileResolver {
    /// Parses the part after `://` of a target.
    pub(super) fn parse(text: &str, rest: &str) -> io::Result<Self> {
        match rest.starts_with('/') {
            true => Ok(Self { path: rest.into() }),
            false => Err(invalid(format!("target {text:?}: expected file:///PATH"))),
        }
    }

    async fn read(&self) -> FileContent {
        let path = self.path.clone();
        // A failed task means that the runtime shuts down. Nothing polls the resolver then.
        spawn_blocking(move || read_limited(&path))
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(|error| format!("{}: {error}", self.path.display()))
    }

    fn endpoints(&self, content: &FileContent) -> io::Result<Endpoints> {
        let text = content.as_deref().map_err(|error| io::Error::other(error.to_owned()))?;
        parse_endpoints(text).map_err(|error| invalid(format!("{}: {error}", self.path.display())))
    }
}

fn read_limited(path: &PathBuf) -> io::Result<String> {
    let mut text = String::new();
    let len = File::open(path)?.take(FILE_LEN_MAX + 1).read_to_string(&mut text)?;
    if len as u64 > FILE_LEN_MAX {
        return Err(invalid(format!("the file is longer than {FILE_LEN_MAX} bytes")));
    }
    Ok(text)
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl Resolve for FileResolver {
    fn resolve(&self, _: Refresh) -> BoxStream<'static, io::Result<Endpoints>> {
        let state = (self.clone(), None::<FileContent>);
        stream::unfold(state, async |(resolver, mut last)| {
            loop {
                if last.is_some() {
                    sleep(READ_PERIOD).await;
                }
                let content = resolver.read().await;
                if last.as_ref() != Some(&content) {
                    return Some((resolver.endpoints(&content), (resolver, Some(content))));
                }
                last = Some(content);
            }
        })
        .boxed()
    }
}

/// Parses an array of addresses and of objects with an address.
fn parse_endpoints(text: &str) -> Result<Endpoints, String> {
    let mut scanner = Scanner::new(text, DEPTH_MAX);
    let mut all = Vec::new();
    let mut is_more = scanner.open(b'[', b']', "an array of endpoints").map_err(|error| at_start(&error))?;
    while is_more {
        let index = all.len();
        let fault = |error: EndpointFault| format!("endpoint {index}: {error}");
        all.push(parse_endpoint(&mut scanner).map_err(fault)?);
        is_more = scanner.next_item(b']').map_err(|error| fault(error.into()))?;
    }
    match scanner.peek() {
        None => Ok(Endpoints::new(all)),
        Some(_) => Err("text after the array of endpoints".to_owned()),
    }
}

fn at_start(error: &SyntaxError) -> String {
    error.to_string()
}

fn parse_endpoint(scanner: &mut Scanner<'_>) -> Result<Endpoint, EndpointFault> {
    if scanner.peek() == Some(b'"') {
        return Ok(Endpoint::parse(&scanner.text(ADDRESS)?)?);
    }
    let (mut endpoint, mut attributes) = (None, Endpoint::parse("mem:none")?);
    let mut is_more = scanner.open(b'{', b'}', "an address or an object")?;
    while is_more {
        match &*scanner.name_text()? {
            "address" => endpoint = Some(Endpoint::parse(&scanner.text(ADDRESS)?)?),
            "weight" => attributes = attributes.weight(parse_weight(scanner)?),
            "zone" => attributes = attributes.zone(parse_text(scanner)?),
            "tlsName" => attributes = attributes.tls_name(parse_text(scanner)?),
            // Other programs may add attributes of their own.
            _ => {
                scanner.value()?;
            }
        }
        is_more = scanner.next_item(b'}')?;
    }
    let Some(Endpoint { address, .. }) = endpoint else { return Err("`address` is missing".to_owned().into()) };
    Ok(Endpoint { address, ..attributes })
}

fn parse_text<'a>(scanner: &mut Scanner<'a>) -> Result<Cow<'a, str>, EndpointFault> {
    Ok(scanner.text("a string")?)
}

fn parse_weight(scanner: &mut Scanner<'_>) -> Result<u32, EndpointFault> {
    let text = scanner.value()?;
    text.parse().map_err(|_| EndpointFault(format!("`weight` is {text}: expected a number up to {}", u32::MAX)))
}

/// The fault of one endpoint in the file.
struct EndpointFault(String);

impl From<String> for EndpointFault {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<SyntaxError> for EndpointFault {
    fn from(error: SyntaxError) -> Self {
        Self(error.to_string())
    }
}

impl From<io::Error> for EndpointFault {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

impl std::fmt::Display for EndpointFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

const ADDRESS: &str = "an address as a string";
/// The time between two reads of the file.
const READ_PERIOD: Duration = Duration::from_secs(1);
/// The maximum length of the file.
const FILE_LEN_MAX: u64 = 4 << 20;
/// The maximum nesting of JSON in the file.
const DEPTH_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_addresses_and_objects() {
        let text =
            r#"["tcp://a:1", {"address": "grpc://b:2", "weight": 3, "zone": "z", "tlsName": "n", "more": [{}]}]"#;
        let found = parse_endpoints(text).unwrap();
        let other = Endpoint::parse("grpc://b:2").unwrap().weight(3).zone("z").tls_name("n");
        assert_eq!(found.list, [Endpoint::parse("tcp://a:1").unwrap(), other]);
        assert_eq!(parse_endpoints("[]").unwrap().list, []);
    }

    #[test]
    fn errors_name_the_endpoint_and_the_field() {
        for (text, why) in [
            ("{}", "an array of endpoints"),
            (r#"["tcp://a:1", "tcp://b"]"#, "endpoint 1: address \"tcp://b\": port missing"),
            (r#"[{"weight": 3}]"#, "endpoint 0: `address` is missing"),
            (r#"[{"address": "tcp://a:1", "weight": -1}]"#, "`weight` is -1"),
            (r#"["tcp://a:1"] x"#, "text after the array"),
            (r#"["tcp://a:1""#, "endpoint 0"),
        ] {
            let error = parse_endpoints(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
