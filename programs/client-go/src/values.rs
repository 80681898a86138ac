//! What is read at the sites of work queues and of requests.

crate::request_values! {
    /// A value read at a site.
    pub enum Value;

    /// Address of the queue's metrics: the same for all that happens to a queue.
    Metrics: Number,
    /// The queue's name, as its metrics have it.
    Queue: Text,
    /// The strings that the key is made of, such as namespace and name.
    Key: Texts,
    /// What else the key is made of: a number, or the address of what it points to.
    Word: Number,
    /// How many keys were added to the queue so far.
    Added: Number,
    /// How many keys its workers are through with so far: all bits but the highest.
    Handled: Number,
}
