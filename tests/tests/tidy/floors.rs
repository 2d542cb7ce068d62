//! Layering of each crate: a module may only refer to modules on its own floor or below, and references must not form
//! cycles.

use crate::{
    ROOT,
    imports::{Edge, Modules, circles},
};

/// Floors of a crate, from the lowest up. A name stands for a module and everything in it. `lib.rs` only re-exports.
struct House {
    krate: &'static str,
    floors: &'static [&'static [&'static str]],
}

const HOUSES: &[House] = &[
    House {
        krate: "frisbee",
        floors: &[
            &[
                "address", "arrival", "backoff", "clock", "config", "content", "error", "lazy_map", "packet", "proto",
                "reload", "sync", "task",
            ],
            &["engine", "net", "pem"],
            &["connection"],
            &["router"],
            &["driver"],
            &["client", "reconnect", "server", "tls"],
        ],
    },
    House {
        krate: "frisbee-pubsub",
        floors: &[
            &["lock", "subject", "sync"],
            &["message"],
            &["error"],
            &["trie", "wire"],
            &["client"],
            &["broker", "remote"],
            &["local", "topic"],
            &["fuzzing"],
        ],
    },
    House {
        krate: "frisbee-pubsub-nats",
        floors: &[
            &["error", "queue"],
            &["options", "subscription"],
            &["refusals"],
            &["nats"],
            &["durable"],
            &["bridge", "source"],
        ],
    },
    House {
        krate: "frpc-schema",
        floors: &[
            &["location", "syntax"],
            &["descriptors", "diagnostic", "model"],
            &["check", "fingerprint", "operations", "order", "positions", "rules"],
            &["compat", "editions", "excerpt", "read", "testing"],
        ],
    },
    House {
        krate: "frpc-build",
        floors: &[
            &["comments", "edition_text", "naming", "sources"],
            &[
                "accessors",
                "descriptors",
                "editions",
                "protoc_rules",
                "protox_errors",
                "render",
                "required",
                "resolver",
            ],
            &["error", "prost_input"],
            &["emit"],
            &["conflicts", "files"],
            &["lock"],
            &["builder", "manual"],
        ],
    },
    House {
        krate: "frpc-rest",
        floors: &[
            &["annotations", "comments", "params", "protos", "template"],
            &["trie", "types"],
            &["routes", "values"],
            &["mask", "openapi", "response"],
            &["request"],
        ],
    },
    House {
        krate: "frpc-json",
        floors: &[&["base64", "end_finder", "error", "search"], &["text"], &["scanner", "splitter"], &["numbers"]],
    },
    House {
        krate: "frpc",
        floors: &[
            &["codec"],
            &["call"],
            &["metrics"],
            &["inspect"],
            &["service"],
            &["error", "field_mask", "pages"],
            &["client"],
            &[
                "wire::call_limit",
                "wire::frisbee::bytes",
                "wire::frisbee::calling::pending",
                "wire::frisbee::calling::table",
                "wire::peer",
            ],
            &["wire::frisbee::peer"],
            &["wire::frisbee::message_streams"],
            &["wire::frisbee::calling", "wire::frisbee::serving"],
            &["wire"],
            &["fleet"],
            &["channel", "server"],
            &["fuzzing", "generated", "testing"],
        ],
    },
    House {
        krate: "frpc-balance",
        floors: &[
            &["budget", "clock", "codes", "error", "load", "outlier", "report"],
            &["limit", "pick", "retry", "throttle"],
            &["config", "subset"],
        ],
    },
    House {
        krate: "frpc-metrics",
        floors: &[&["histogram", "thread"], &["family", "totals"], &["cells", "sources", "text"], &["counters"]],
    },
    House {
        krate: "frpc-jsonrpc",
        floors: &[
            &["outbox", "protos"],
            &["failure", "function", "request", "schema"],
            &["generated", "methods", "settings", "values"],
            &["calls", "client"],
            &["connection"],
            &["wire"],
            &["fuzzing", "http"],
        ],
    },
    House { krate: "frpc-jsonrpc-macros", floors: &[&["docs", "options", "parameter"], &["expand", "schema"], &[""]] },
    House {
        krate: "frpc-macros",
        floors: &[&["message", "variants"], &["from_status", "into_status"], &["", "tests"]],
    },
    House { krate: "frpc-http2", floors: &[&["error", "settings"], &["frame", "hpack"], &["head"], &["connection"]] },
    House {
        krate: "frpc-admin",
        floors: &[&["access", "process", "protos"], &["channelz", "page", "sampler"], &["admin"]],
    },
    House {
        krate: "frpc-nats",
        floors: &[
            &["cluster", "frame", "headers", "micro", "names", "settings"],
            &["announce", "stream"],
            &["client", "resolve", "serve"],
            &["schemes"],
        ],
    },
    House {
        krate: "frpc-opentelemetry",
        floors: &[
            &["error", "protos"],
            &["process", "settings"],
            &["collector", "points"],
            &["bridge", "current_span", "metrics", "spans"],
        ],
    },
    House {
        krate: "frpc-xds",
        floors: &[
            &["error", "protos", "settings"],
            &["bootstrap", "resources"],
            &["certificates", "protocol", "routing"],
            &["client"],
            &["assembly", "stream"],
            &["fuzzing", "resolver"],
        ],
    },
    House {
        krate: "frpc-kubernetes",
        floors: &[
            &["settings", "slices", "target"],
            &["config", "events", "select"],
            &["api", "kubeconfig"],
            &["watch"],
            &["resolver"],
        ],
    },
    House { krate: "frpc-services", floors: &[&["catalog", "protos"], &["health", "reflection", "watcher"]] },
    House {
        krate: "frpc-record",
        floors: &[&["error", "protos", "settings"], &["frame", "metadata"], &["reader", "writer"], &["recorder"]],
    },
    House { krate: "frisbee-wasm", floors: &[&["io", "task", "timers"], &["net", "runtime", "time"]] },
    House { krate: "frpc-sim", floors: &[&["faults", "lock"], &["link", "seeds"], &["pipe"], &["network"]] },
    House { krate: "frpc-dynamic", floors: &[&["memory"], &["layouts"], &["schema"]] },
    House { krate: "frpc-validate", floors: &[&["rules"], &["violations"], &["layer"]] },
    House { krate: "frpc-types", floors: &[&["messages"], &["details", "generated"]] },
    House {
        krate: "frpc-websocket",
        floors: &[
            &["browser", "close", "keepalive", "mask", "sha1", "utf8"],
            &["frame", "handshake"],
            &["decoder"],
            &["encoder"],
            &["link"],
            &["stream"],
            &["socket"],
            &["client"],
        ],
    },
    House {
        krate: "frpc-cli",
        floors: &[
            &["suggest", "terminal"],
            &["failure", "paint"],
            &["paths"],
            &["fields", "tls"],
            &["arguments", "connect", "declarations", "messages", "open_rpc", "schema"],
            &["broker", "invocation"],
            &["load", "replay"],
            &["commands"],
            &[""],
            &["bin::frpc", "bin::frpcli"],
        ],
    },
];

#[test]
fn imports_point_to_lower_floors() {
    let mut offences = Vec::new();
    for house in HOUSES {
        let modules = read(house.krate);
        let edges = modules.edges();
        println!("{}: {} modules, {} edges", house.krate, modules.files().count(), edges.len());
        edges.iter().for_each(|edge| println!("  {}", house.describe(edge)));
        offences.extend(house.offences(&modules, &edges));
    }
    assert!(offences.is_empty(), "the floors are not kept:\n{}", offences.join("\n"));
}

#[test]
fn imports_are_read_from_the_sources() {
    let edges = read("frisbee").edges();
    let has = |from: &str, to: &str| edges.iter().any(|edge| edge.from == from && edge.to == to);
    assert!(has("router::arrivals", "connection::handle"), "through lib.rs");
    assert!(has("client", "driver::scope"), "through mod.rs");
    assert!(has("proto::connection::input", "proto::connection"), "through super");
    assert!(edges.len() > 100);
    let edges = read("frpc").edges();
    let has = |from: &str, to: &str| edges.iter().any(|edge| edge.from == from && edge.to == to);
    assert!(has("codec::polyglot::decode", "codec::polyglot::reader"), "through super");
    assert!(has("channel", "wire::frisbee::calling::reconnecting"), "through crate");
    assert!(edges.len() > 150);
}

#[test]
fn architecture_lists_the_floors() {
    let path = format!("{ROOT}/ARCHITECTURE.md");
    let page = std::fs::read_to_string(&path).expect("the page exists");
    let (before, rest) = page.split_once(BEGIN).expect("the page has the first marker");
    let (_, after) = rest.split_once(END).expect("the page has the second marker");
    let expected = format!("{before}{BEGIN}\n{}{END}{after}", listed(HOUSES));
    if page != expected {
        std::fs::write(&path, expected).expect("the page can be written");
        panic!("ARCHITECTURE.md had other floors than floors.rs: its section was rewritten, review and commit it");
    }
}

const BEGIN: &str = "<!-- floors: generated -->";
const END: &str = "<!-- floors: end -->";

/// Returns the floors as a block of text for a page, the highest first.
fn listed(houses: &[House]) -> String {
    let mut block = "```text\n".to_owned();
    for house in houses {
        block += &format!("{}\n", house.krate);
        for (floor, names) in house.floors.iter().enumerate().rev() {
            let names: Vec<_> = names.iter().map(|module| name(module)).collect();
            block += &format!("  {floor}  {}\n", names.join(", "));
        }
    }
    block + "```\n"
}

#[test]
fn floors_are_listed_with_the_highest_first() {
    assert_eq!(listed(&[MADE_UP]), "```text\nmade-up\n  1  ground, cellar::stairs\n  0  cellar\n```\n");
}

/// Reads the sources of one of our crates.
fn read(krate: &str) -> Modules {
    let files = crate::files_below(&format!("crates/{krate}/src/"), ".rs");
    Modules::read(&files.iter().map(|(name, text)| (&**name, &**text)).collect::<Vec<_>>())
}

impl House {
    fn floor(&self, module: &str) -> Option<usize> {
        let is_within =
            |name: &&str| module.strip_prefix(*name).is_some_and(|more| more.is_empty() || more.starts_with("::"));
        // The most specific name counts.
        let names =
            self.floors.iter().enumerate().flat_map(|(floor, names)| names.iter().map(move |name| (floor, name)));
        names.filter(|(_, name)| is_within(name)).max_by_key(|(_, name)| name.len()).map(|(floor, _)| floor)
    }

    fn describe(&self, edge: &Edge) -> String {
        let floor = |module: &str| self.floor(module).map_or("?".to_owned(), |floor| floor.to_string());
        let Edge { from, to, file, line, path } = edge;
        let (from_floor, to_floor) = (floor(from), floor(to));
        format!("{from_floor} {} -> {to_floor} {}  {file}:{line} {path}", name(from), name(to))
    }

    fn offences(&self, modules: &Modules, edges: &[Edge]) -> Vec<String> {
        let mut offences = Vec::new();
        // The root needs a floor only if an edge involves it.
        let is_involved = |module: &str| edges.iter().any(|edge| edge.from == module || edge.to == module);
        for module in modules.files().filter(|module| !module.is_empty() || is_involved(module)) {
            if self.floor(module).is_none() {
                offences.push(format!("{}: {} has no floor", self.krate, name(module)));
            }
        }
        for listed in self.floors.iter().flat_map(|names| names.iter()) {
            if !modules.files().any(|module| module == *listed) {
                offences.push(format!("{}: {listed} has a floor and does not exist", self.krate));
            }
        }
        for edge in edges.iter().filter(|edge| self.floor(&edge.from) < self.floor(&edge.to)) {
            offences.push(format!("{}: goes up: {}", self.krate, self.describe(edge)));
        }
        for circle in circles(edges) {
            let steps: Vec<_> = circle.iter().map(|edge| format!("    {}", self.describe(edge))).collect();
            offences.push(format!("{}: a circle:\n{}", self.krate, steps.join("\n")));
        }
        offences
    }
}

fn name(module: &str) -> &str {
    if module.is_empty() { "lib.rs" } else { module }
}

const MADE_UP: House = House { krate: "made-up", floors: &[&["cellar"], &["ground", "cellar::stairs"]] };

fn offences_of(files: &[(&str, &str)]) -> Vec<String> {
    let modules = Modules::read(files);
    MADE_UP.offences(&modules, &modules.edges())
}

#[test]
fn a_valid_layout_has_no_violations() {
    let files = [
        ("lib.rs", "pub use cellar::Coal;"),
        ("cellar/mod.rs", "pub struct Coal;"),
        ("cellar/stairs.rs", "use super::Coal;"),
        ("ground.rs", "use crate::{Coal, cellar};"),
    ];
    assert_eq!(offences_of(&files), Vec::<String>::new());
}

#[test]
fn an_upward_import_is_reported_with_file_and_line() {
    let files = [
        ("lib.rs", "pub use ground::Stove;"),
        ("cellar/mod.rs", "pub struct Coal;\n\nuse crate::Stove;"),
        ("cellar/stairs.rs", ""),
        ("ground.rs", "pub struct Stove;"),
    ];
    assert_eq!(offences_of(&files), ["made-up: goes up: 0 cellar -> 1 ground  cellar/mod.rs:3 crate::Stove"]);
}

#[test]
fn a_cycle_within_a_floor_is_a_violation() {
    let files = [
        ("lib.rs", ""),
        ("cellar/mod.rs", ""),
        ("cellar/stairs.rs", "fn up() { crate::ground::walk() }"),
        ("ground.rs", "pub fn walk() {}\nfn down() { crate::cellar::stairs::up() }"),
    ];
    let expected = "made-up: a circle:\n    1 cellar::stairs -> 1 ground  cellar/stairs.rs:1 crate::ground::walk\n    1 ground -> 1 \
                    cellar::stairs  ground.rs:2 crate::cellar::stairs::up";
    assert_eq!(offences_of(&files), [expected]);
}

#[test]
fn modules_and_floors_must_match() {
    let files =
        [("lib.rs", "pub struct Roof;"), ("cellar/mod.rs", ""), ("ground.rs", "use crate::Roof;"), ("shed.rs", "")];
    let expected = [
        "made-up: lib.rs has no floor",
        "made-up: shed has no floor",
        "made-up: cellar::stairs has a floor and does not exist",
        "made-up: goes up: 1 ground -> ? lib.rs  ground.rs:1 crate::Roof",
    ];
    assert_eq!(offences_of(&files)[..3], expected[..3]);
}
