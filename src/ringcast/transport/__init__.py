Transport = object
