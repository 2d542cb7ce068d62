//! Echoes every packet, one write per read, without a framework: the cost of the kernel and tokio alone.

use std::error::Error;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use benches::Inbox;
use load::{Arguments, ServerArgs, process};
use socket2::{Domain, Socket, Type};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::runtime::Builder;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = Arguments::from_env();
    let engine: Option<String> = arguments.opt_value_from_str("--engine")?;
    let ServerArgs { addr, sleep } = ServerArgs::parse(arguments)?;
    process::raise_open_files_limit()?;
    match engine.as_deref() {
        None | Some("tokio") => serve_on_one_runtime(addr, sleep)?,
        Some("per-core") => serve_per_core(addr, sleep)?,
        Some(other) => return Err(format!("unknown engine {other}").into()),
    }
    Ok(())
}

fn serve_on_one_runtime(addr: SocketAddr, sleep: Duration) -> io::Result<()> {
    let listener = listen(new_socket(addr)?, addr)?;
    announce(&listener)?;
    Builder::new_multi_thread().enable_all().build()?.block_on(accept(listener, sleep))
}

/// Starts a listener on each core. The kernel distributes connections over them.
fn serve_per_core(mut addr: SocketAddr, sleep: Duration) -> io::Result<()> {
    let mut listeners = Vec::new();
    for _ in 0..thread::available_parallelism()?.get() {
        let socket = new_socket(addr)?;
        // On other systems, binding the second listener fails with an error.
        #[cfg(unix)]
        socket.set_reuse_port(true)?;
        let listener = listen(socket, addr)?;
        addr = listener.local_addr()?;
        listeners.push(listener);
    }
    announce(&listeners[0])?;
    let serve = move |listener| Builder::new_current_thread().enable_all().build()?.block_on(accept(listener, sleep));
    let threads: Vec<_> = listeners.into_iter().map(|listener| thread::spawn(move || serve(listener))).collect();
    threads.into_iter().try_for_each(|thread| thread.join().expect("a server thread does not panic"))
}

fn new_socket(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    Ok(socket)
}

fn listen(socket: Socket, addr: SocketAddr) -> io::Result<TcpListener> {
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn announce(listener: &TcpListener) -> io::Result<()> {
    println!("listening on {}", listener.local_addr()?);
    io::stdout().flush()
}

async fn accept(listener: TcpListener, sleep: Duration) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        // The client reports failed connections.
        tokio::spawn(async move { echo(stream, sleep).await.ok() });
    }
}

async fn echo(mut stream: TcpStream, sleep: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut inbox = Inbox::default();
    while inbox.fill(&mut stream).await? {
        if !sleep.is_zero() {
            // All packets of one read share one sleep.
            tokio::time::sleep(sleep).await;
        }
        let frames = inbox.frames()?;
        stream.write_all(frames).await?;
        let answered = frames.len();
        inbox.consume(answered);
    }
    Ok(())
}

const BACKLOG: i32 = 4096;
