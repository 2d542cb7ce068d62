//! Output of commands: without a reader, and with texts of hostile servers.

use std::{
    io::{BufRead, BufReader, pipe},
    process::{Command, Stdio},
};

use serde_json::json;

use crate::program::{Directory, Ran, Server, command, frpc};

/// Runs the program to its end without a reader of its standard output.
fn frpc_unread(arguments: &[&str]) -> Ran {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    command(arguments).stdout(writer).output().unwrap().into()
}

#[test]
fn commands_exit_quietly_when_their_output_is_closed() {
    let server = Server::start();
    let at = &*server.address;
    let functions = server.over("jsonrpc+tcp");
    let load = ["-n", "5", "-c", "1", "--warmup", "0"];
    let commands: &[&[&str]] = &[
        &["list", at],
        &["list", at, "--json"],
        &["list", &functions],
        &["describe", at],
        &["describe", at, "Say", "--template"],
        &["describe", at, "Say", "--json"],
        &["describe", &functions, "sum"],
        &["call", at, "Say", "text=a"],
        &["call", at, "Say", "text=a", "--raw"],
        &["call", at, "Repeat", "times=3", "--json"],
        &[&["bench", at, "Say"], &load[..]].concat(),
        &[&["bench", at, "Say", "--against", at, "--rounds", "1"], &load[..]].concat(),
        &[&["bench", at, "Say", "--json"], &load[..]].concat(),
        &["pub", at, "a.b", "c"],
        &["sub", at, "a.*", "--json"],
        &["completions", "bash"],
        &["--help"],
    ];
    for arguments in commands {
        let ran = frpc_unread(arguments);
        assert_eq!((ran.code, &*ran.err), (0, ""), "{arguments:?}");
    }
}

#[test]
fn the_exit_code_is_kept_when_stderr_is_closed() {
    let server = Server::start();
    for (arguments, code) in [(["list", &*server.address, "Ecoh"], 1), (["call", &*server.address, "Fail"], 64 + 3)] {
        for options in [&[][..], &["--json"]] {
            let (reader, writer) = pipe().unwrap();
            drop(reader);
            let mut command = command(&[&arguments[..], options].concat());
            let status = command.stdout(writer.try_clone().unwrap()).stderr(writer).status().unwrap();
            assert_eq!(status.code(), Some(code), "{arguments:?}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_error_is_a_failure() {
    let server = Server::start();
    for arguments in [&["list", &*server.address][..], &["call", &*server.address, "Say"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let ran: Ran = command(arguments).stdout(full).output().unwrap().into();
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.err.contains("standard output: "), "{ran:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_server_continues_without_a_reader_of_its_output() {
    let directory = Directory::new("unread");
    let path = directory.path("echo.sock");
    let address = format!("unix:{path}");
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let mut child = command(&["serve", "--echo", &address]).stdout(writer).spawn().unwrap();
    while std::os::unix::net::UnixStream::connect(&path).is_err() {
        assert!(child.try_wait().unwrap().is_none(), "the server has ended");
        std::thread::yield_now();
    }
    let ran = frpc(&["call", &address, "Say", "text=a", "--json"]);
    assert_eq!(ran.json(), [json!({ "text": "a" })]);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// ESC, the one-byte form of CSI, DEL, a direction override, an isolate, a zero-width space, and a tag character.
const HOSTILE: &str = "a\x1b[2J\u{9b}31m\u{7f}b\u{202e}c\u{2066}d\u{200b}\u{e0041}";

fn assert_harmless(ran: &Ran) {
    let is_hostile = |char: &char| HOSTILE.contains(*char) && !char.is_ascii_graphic();
    for text in [&ran.out, &ran.err] {
        assert_eq!(text.chars().find(is_hostile), None, "{ran:?}");
    }
}

#[test]
fn control_characters_of_a_server_are_escaped() {
    let server = Server::start();
    let message = json!({ "text": HOSTILE, "labels": { HOSTILE: HOSTILE } });
    let (given, text) = (message.to_string(), format!("text={HOSTILE}"));
    for wire in ["tcp", "grpc", "http"] {
        let at = server.over(wire);
        for options in [&[][..], &["--json"], &["--as-json"], &["--as-json", "--json"], &["-v"]] {
            let ran = frpc(&[&["call", &at, "Say", "-d", &given], options].concat());
            assert_harmless(&ran);
            assert_eq!(serde_json::from_str::<serde_json::Value>(&ran.out).unwrap(), message, "{ran:?}");
        }
        for options in [&[][..], &["--json"], &["-v"]] {
            let ran = frpc(&[&["call", &at, "Fail", "code=5", &text], options].concat());
            assert_eq!(ran.code, 64 + 5, "{ran:?}");
            assert_harmless(&ran);
            assert!(ran.err.contains(r"202e"), "{ran:?}");
        }
    }
}

#[test]
fn json_output_is_one_line_per_message() {
    let server = Server::start();
    let at = format!("{}/rpc", server.over("jsonrpc+http"));
    let ran = frpc(&["call", &at, "greet", &format!("name={HOSTILE}"), "--json"]);
    assert_harmless(&ran);
    assert_eq!(ran.json(), [json!(format!("Hello, {HOSTILE}!"))]);
}

#[test]
fn control_characters_in_payloads_are_escaped() {
    let server = Server::start();
    for options in [&[][..], &["--json"]] {
        let arguments = [&["sub", &*server.address, "a.>", "--count", "1"], options].concat();
        assert_eq!(frpc(&["pub", &server.address, "a.b", HOSTILE, "--retain"]).code, 0);
        let ran = frpc(&arguments);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_harmless(&ran);
    }
}

#[test]
fn a_port_alone_means_localhost() {
    let server = Server::start_with(":0", &[]);
    assert!(server.address.starts_with("tcp://127.0.0.1:"), "{}", server.address);
    let port = server.address.rsplit(':').next().unwrap();
    let ran = frpc(&["call", &format!(":{port}"), "Say", "text=a", "--json"]);
    assert_eq!(ran.json(), [json!({ "text": "a" })]);
    let ran = frpc(&["serve", "--echo", "7300"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("try: :7300, for a port on this machine"), "{ran:?}");
}

#[test]
fn serve_prints_its_address() {
    let mut child = command(&["serve", "--echo", "tcp://127.0.0.1:0"]).stderr(Stdio::inherit()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(line.starts_with("listening on tcp://127.0.0.1:"), "{line}");
}

#[test]
fn the_command_has_a_second_name() {
    for (program, name) in [(env!("CARGO_BIN_EXE_frpc"), "frpc"), (env!("CARGO_BIN_EXE_frpcli"), "frpcli")] {
        let run = |arguments: &[&str]| Ran::from(Command::new(program).args(arguments).output().unwrap());
        let script = run(&["completions", "bash"]);
        assert!(script.out.contains(&format!("complete -F _{name} ")), "{script:?}");
        assert!(run(&["call", "--help"]).out.contains(&format!("Usage: {name} call ")));
    }
}
