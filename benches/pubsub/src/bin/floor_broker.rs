//! Forwards every frame to all subscribers of its id, with one write per read and subscriber and without a framework:
//! the cost of the kernel and tokio alone.

use std::{
    collections::HashMap,
    error::Error,
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

use benches::{CONTENT_LEN_MAX, Frame};
use load::{Arguments, parse_addr, process};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    sync::Mutex as Turns,
};

/// The operation that makes a connection a subscriber.
const SUBSCRIBE: u16 = 20;

/// The subscribers of each id.
type Subscribers = Arc<Mutex<HashMap<u16, Vec<Arc<Turns<OwnedWriteHalf>>>>>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let addr = Arguments::from_env().free_from_fn(parse_addr)?;
    process::raise_open_files_limit()?;
    let listener = TcpListener::bind(addr).await?;
    println!("listening on {}", listener.local_addr()?);
    io::stdout().flush()?;
    let subscribers = Subscribers::default();
    loop {
        let (stream, _) = listener.accept().await?;
        let subscribers = subscribers.clone();
        // The load program reports failed connections.
        tokio::spawn(async move { serve(stream, subscribers).await.ok() });
    }
}

async fn serve(stream: TcpStream, subscribers: Subscribers) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut reader, writer) = stream.into_split();
    let mut bytes = vec![0; 256 * 1024];
    let mut filled = reader.read(&mut bytes).await?;
    if let Some((Frame { id, operation: SUBSCRIBE, .. }, _)) = Frame::split_from(&bytes[..filled])? {
        let writer = Arc::new(Turns::new(writer));
        // The publisher starts only after all subscribers have received this answer.
        subscribers.lock().unwrap_or_else(PoisonError::into_inner).entry(id).or_default().push(writer.clone());
        writer.lock().await.write_all(&bytes[..filled]).await?;
        return wait_for_end(reader).await;
    }
    let mut routes: HashMap<u16, (Vec<u8>, Vec<_>)> = {
        let subscribers = subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        subscribers.iter().map(|(id, receivers)| (*id, (Vec::new(), receivers.clone()))).collect()
    };
    loop {
        let whole = gather(&bytes[..filled], &mut routes)?;
        for (frames, receivers) in routes.values_mut().filter(|(frames, _)| !frames.is_empty()) {
            for receiver in &*receivers {
                receiver.lock().await.write_all(frames).await?;
            }
            frames.clear();
        }
        bytes.copy_within(whole..filled, 0);
        filled -= whole;
        if bytes.len() == filled {
            bytes.resize(2 * filled + CONTENT_LEN_MAX as usize, 0);
        }
        match reader.read(&mut bytes[filled..]).await? {
            0 => return Ok(()),
            len => filled += len,
        }
    }
}

/// Adds each complete frame to the output of its id. Returns the total length of complete frames.
fn gather<R>(bytes: &[u8], routes: &mut HashMap<u16, (Vec<u8>, R)>) -> io::Result<usize> {
    let mut rest = bytes;
    while let Some((frame, behind)) = Frame::split_from(rest)? {
        if let Some((frames, _)) = routes.get_mut(&frame.id) {
            frames.extend(&rest[..rest.len() - behind.len()]);
        }
        rest = behind;
    }
    Ok(bytes.len() - rest.len())
}

async fn wait_for_end(mut reader: OwnedReadHalf) -> io::Result<()> {
    while reader.read(&mut [0; 16]).await? > 0 {}
    Ok(())
}
