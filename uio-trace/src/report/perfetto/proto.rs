//! The little of the protobuf wire format that a trace needs: tags, varints, 64-bit values, lengths.
//!
//! <https://protobuf.dev/programming-guides/encoding/>. Fields are written in any order, none is repeated by accident;
//! a default value that is not written means the same as one that is.

/// A message under construction.
#[derive(Debug, Default, Clone)]
pub(super) struct Message(Vec<u8>);

/// Wire types.
const VARINT: u64 = 0;
const I64: u64 = 1;
const LEN: u64 = 2;

impl Message {
    pub(super) fn new() -> Message {
        Message::default()
    }

    fn put(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn tag(&mut self, field: u32, wire: u64) {
        self.put(u64::from(field) << 3 | wire);
    }

    /// uint32, uint64, bool, enum.
    pub(super) fn uint(mut self, field: u32, value: u64) -> Message {
        self.tag(field, VARINT);
        self.put(value);
        self
    }

    /// double.
    pub(super) fn double(mut self, field: u32, value: f64) -> Message {
        self.tag(field, I64);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u32, bytes: &[u8]) -> Message {
        self.tag(field, LEN);
        self.put(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    /// string.
    pub(super) fn text(self, field: u32, text: &str) -> Message {
        self.bytes(field, text.as_bytes())
    }

    /// A message within.
    pub(super) fn message(self, field: u32, message: &Message) -> Message {
        self.bytes(field, &message.0)
    }

    /// The encoding.
    pub(super) fn encoded(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the specification.
    #[test]
    fn encodes_as_the_specification_says() {
        assert_eq!(Message::new().uint(1, 150).encoded(), [0x08, 0x96, 0x01]);
        assert_eq!(
            Message::new().text(2, "testing").encoded(),
            [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]
        );
        let inner = Message::new().uint(1, 150);
        assert_eq!(
            Message::new().message(3, &inner).encoded(),
            [0x1a, 0x03, 0x08, 0x96, 0x01]
        );
        assert_eq!(
            Message::new().uint(1, u64::MAX).encoded(),
            [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]
        );
        assert_eq!(
            Message::new().double(1, 1.0).encoded(),
            [0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]
        );
    }
}
