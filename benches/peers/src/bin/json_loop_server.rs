//! Answers JSON-RPC over TCP in a loop with tokio and serde_json, one write per read: the lower bound of any server.

use std::error::Error;
use std::io;

use load::{Arguments, ServerArgs, process};
use peers::json_rpc::Request;
use serde_json::Deserializer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let ServerArgs { addr, sleep: _ } = ServerArgs::parse(Arguments::from_env())?;
    process::raise_open_files_limit()?;
    let listener = peers::listen(addr)?;
    loop {
        let (socket, _) = listener.accept().await?;
        // A killed client is not an error of the server.
        tokio::spawn(async move { serve(socket).await.ok() });
    }
}

async fn serve(mut socket: TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut inbox = vec![0; READ_LEN];
    let mut filled = 0;
    let mut out = Vec::with_capacity(READ_LEN);
    loop {
        if filled == inbox.len() {
            inbox.resize(2 * filled, 0);
        }
        let read = socket.read(&mut inbox[filled..]).await?;
        if read == 0 {
            return Ok(());
        }
        filled += read;
        out.clear();
        let answered = answer(&inbox[..filled], &mut out)?;
        inbox.copy_within(answered..filled, 0);
        filled -= answered;
        socket.write_all(&out).await?;
    }
}

/// Answers every complete request, and returns their total length.
fn answer(bytes: &[u8], out: &mut Vec<u8>) -> io::Result<usize> {
    let mut requests = Deserializer::from_slice(bytes).into_iter::<Request<'_>>();
    loop {
        let answered = requests.byte_offset();
        match requests.next() {
            Some(Ok(request)) => {
                request.answer(out);
                out.push(b'\n');
            }
            Some(Err(error)) if !error.is_eof() => return Err(error.into()),
            Some(Err(_)) | None => return Ok(answered),
        }
    }
}

const READ_LEN: usize = 16 << 10;
