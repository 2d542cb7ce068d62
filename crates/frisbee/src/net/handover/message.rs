//! The messages of a handover: one per listener, with its descriptor.
//!
//! A message is a kind, the length of the name in two bytes (big-endian), and the name. The message of kind 0 ends the
//! list.

use std::{
    collections::VecDeque,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use tokio::{
    io::{AsyncWriteExt, Interest},
    net::UnixStream,
};

/// A listener on its way to another process.
pub(super) struct PassedListener {
    pub(super) kind: ListenerKind,
    pub(super) name: String,
    pub(super) descriptor: OwnedFd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ListenerKind {
    Plain = 1,
    /// Its last owner removes the socket file.
    WithFile = 2,
    /// The handover socket.
    Handover = 3,
}

/// Sends the list of listeners.
pub(super) async fn send(to: &mut UnixStream, listeners: Vec<PassedListener>) -> io::Result<()> {
    if listeners.len() > LISTENERS_MAX {
        let why = format!("{} listeners: a handover passes {LISTENERS_MAX} at most", listeners.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    for PassedListener { kind, name, descriptor } in listeners {
        let len = u16::try_from(name.len()).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a long name"))?;
        let bytes = [&[kind as u8], &len.to_be_bytes()[..], name.as_bytes()].concat();
        let sent = to.async_io(Interest::WRITABLE, || send_with(&*to, &bytes, &descriptor)).await?;
        // The descriptor arrives with the first byte.
        to.write_all(&bytes[sent..]).await?;
    }
    to.write_all(&[END, 0, 0]).await
}

fn send_with(to: &UnixStream, bytes: &[u8], descriptor: &OwnedFd) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let descriptors = [descriptor.as_fd()];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    Ok(sendmsg(to, &[IoSlice::new(bytes)], &mut control, SendFlags::empty())?)
}

/// Receives the list of listeners.
pub(super) async fn receive(from: &UnixStream) -> io::Result<Vec<PassedListener>> {
    let mut reader = MessageReader::default();
    loop {
        if from.async_io(Interest::READABLE, || reader.read(from)).await? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended before it had passed its listeners"));
        }
        if reader.take_messages()? {
            return Ok(reader.listeners);
        }
    }
}

/// Bytes and descriptors that have arrived. The n-th descriptor belongs to the n-th message.
#[derive(Default)]
struct MessageReader {
    bytes: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
    listeners: Vec<PassedListener>,
}

impl MessageReader {
    fn read(&mut self, from: &UnixStream) -> io::Result<usize> {
        let mut buffer = [0; READ_LEN];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        // Elsewhere, the flag is set on each descriptor after its arrival.
        #[cfg(target_os = "linux")]
        let flags = RecvFlags::CMSG_CLOEXEC;
        #[cfg(not(target_os = "linux"))]
        let flags = RecvFlags::empty();
        let read = recvmsg(from, &mut [IoSliceMut::new(&mut buffer)], &mut control, flags)?.bytes;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        self.bytes.extend_from_slice(&buffer[..read]);
        Ok(read)
    }

    /// Takes all complete messages. Returns `true` after the end of the list.
    fn take_messages(&mut self) -> io::Result<bool> {
        if self.listeners.len() + self.descriptors.len() > LISTENERS_MAX {
            return Err(malformed("it passed too many listeners"));
        }
        loop {
            let Some((&[kind, high, low], rest)) = self.bytes.split_first_chunk() else { return Ok(false) };
            if kind == END {
                return Ok(true);
            }
            let kind = match kind {
                1 => ListenerKind::Plain,
                2 => ListenerKind::WithFile,
                3 => ListenerKind::Handover,
                _ => return Err(malformed("it sent a message of an unknown kind")),
            };
            let len = usize::from(u16::from_be_bytes([high, low]));
            let Some(name) = rest.get(..len) else { return Ok(false) };
            let name = String::from_utf8(name.to_vec()).map_err(|_| malformed("it sent a name that is not UTF-8"))?;
            let Some(descriptor) = self.descriptors.pop_front() else {
                return Err(malformed("it sent a message without a descriptor"));
            };
            self.bytes.drain(..3 + len);
            self.listeners.push(PassedListener { kind, name, descriptor });
        }
    }
}

pub(super) fn malformed(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the other process is no server with a handover: {why}"))
}

const END: u8 = 0;
/// The maximum number of listeners. Some engines have one per core and address.
const LISTENERS_MAX: usize = 4096;
/// The maximum number of descriptors read with one system call.
const DESCRIPTORS_MAX: usize = 16;
const READ_LEN: usize = 4096;

#[cfg(test)]
mod tests {
    use std::{io, net::TcpListener, os::fd::OwnedFd};

    use tokio::{io::AsyncWriteExt, net::UnixStream};

    use super::{ListenerKind, PassedListener, receive, send};

    fn listener(name: &str) -> PassedListener {
        let descriptor: OwnedFd = TcpListener::bind("127.0.0.1:0").unwrap().into();
        PassedListener { kind: ListenerKind::Plain, name: name.to_owned(), descriptor }
    }

    #[tokio::test]
    async fn passes_more_listeners_than_one_message_holds() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let names: Vec<String> = (0..100).map(|index| format!("{index}{}", "n".repeat(100 * index))).collect();
        let sent = names.iter().map(|name| listener(name)).collect();
        let (sent, received) = tokio::join!(send(&mut ours, sent), receive(&theirs));
        sent.unwrap();
        let received = received.unwrap();
        assert_eq!(
            received.iter().map(|listener| &listener.name).collect::<Vec<_>>(),
            names.iter().collect::<Vec<_>>()
        );
        for PassedListener { descriptor, .. } in received {
            TcpListener::from(descriptor).local_addr().unwrap();
        }
    }

    #[tokio::test]
    async fn refuses_other_bytes() {
        for (bytes, kind) in [
            (&b""[..], io::ErrorKind::UnexpectedEof),
            (b"\x01\xff\xffname", io::ErrorKind::UnexpectedEof),
            (b"\x01\x00\x01n\x00\x00\x00", io::ErrorKind::InvalidData),
            (b"\x01\x00\x01\xff", io::ErrorKind::InvalidData),
            (b"HTTP/1.1 400 Bad Request", io::ErrorKind::InvalidData),
        ] {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            ours.write_all(bytes).await.unwrap();
            drop(ours);
            assert_eq!(receive(&theirs).await.err().unwrap().kind(), kind, "{bytes:?}");
        }
    }
}
