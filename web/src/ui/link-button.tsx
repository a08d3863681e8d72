import { Button, type ButtonProps } from "antd";
import { Link } from "react-router";

/** A button that leads to a page; where it is off there is no link, which the keyboard would still open. */
export function LinkButton({ to, ...props }: ButtonProps & { to: string }) {
  if (props.disabled) return <Button {...props} />;
  return (
    <Link to={to} tabIndex={-1}>
      <Button {...props} />
    </Link>
  );
}
